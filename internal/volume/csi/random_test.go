package csi_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/test/testcsi"
	"podrun.io/podrun/internal/volume/csi"
)

var (
	seeds = flag.Int("csi-seeds", 4, "how many random histories")
	from  = flag.Uint64("csi-from", 0, "the seed of the first one")
)

// childOf names, in the environment of this program as a child, what it is and the directory of its machine.
const childOf = "PODRUN_CSI_CHILD"

func TestMain(m *testing.M) {
	role, dir, is := strings.Cut(os.Getenv(childOf), ":")
	switch {
	case !is:
		os.Exit(m.Run())
	case role == "driver":
		_ = driverIn(dir).Serve(context.Background())
	default:
		volumesOf(dir)
	}
}

func driverIn(dir string) *testcsi.Driver {
	return &testcsi.Driver{
		Name: driverName, Node: "this-node", Stages: true,
		Dir: filepath.Join(dir, "k", "plugins", "d"), Registry: filepath.Join(dir, "k", "plugins_registry"),
	}
}

func dirsIn(dir string) layout.Dirs {
	return layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")}
}

// volumesOf is what podrun does with volumes: it publishes those of the pods that it is sent by "want UID", until that
// succeeds, and releases those of "remove UID". It answers each with the path and with "-".
func volumesOf(dir string) {
	dirs := dirsIn(dir)
	drivers := csi.New(csi.Options{Dirs: dirs, Dir: filepath.Join(dir, "k"), Own: func(context.Context, *v1.Pod, string) error { return nil }})
	registry := pluginregistry.New(pluginregistry.Options{
		File:     filepath.Join(dir, "k", "refused.json"),
		Dir:      filepath.Join(dir, "k", "plugins_registry"),
		Handlers: map[string]pluginregistry.Handler{registration.CSIPlugin: drivers}, Log: slog.New(slog.DiscardHandler),
	})
	go func() { _ = registry.Run(context.Background()) }()
	go func() { _ = drivers.Run(context.Background()) }()
	workers := map[string]chan string{} // one thing of a pod at a time
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		what, uid, _ := strings.Cut(in.Text(), " ")
		if workers[uid] == nil {
			workers[uid] = make(chan string, 100)
			go work(drivers, dirs, uid, workers[uid])
		}
		workers[uid] <- what
	}
}

func work(drivers *csi.Drivers, dirs layout.Dirs, uid string, orders <-chan string) {
	wanted, again := false, time.NewTicker(5*time.Millisecond)
	for {
		select {
		case what := <-orders:
			if wanted = what == "want"; wanted {
				_ = os.MkdirAll(dirs.Pod(pod.UID(uid)), 0o700)
				continue
			}
			if drivers.Release(context.Background(), pod.UID(uid)) == nil && os.RemoveAll(dirs.Pod(pod.UID(uid))) == nil {
				fmt.Println(uid, "-")
			}
		case <-again.C:
			if !wanted {
				continue
			}
			if p, err := drivers.Publish(context.Background(), requestOf(uid)); err == nil {
				wanted = false
				fmt.Println(uid, p.Path)
			}
		}
	}
}

// requestOf asks for the volume of a pod: those with an odd number have an inline volume, the others share one.
func requestOf(uid string) csi.Request {
	r := csi.Request{
		Pod:    &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: pod.UID(uid)}},
		Volume: "data", Source: &v1.CSIVolumeSource{Driver: driverName},
	}
	if (uid[1]-'0')%2 == 0 {
		r.Persistent = &csi.Persistent{Name: "pv", Claim: "claim", Handle: handle, Modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}}
	}
	return r
}

// history is a random one of several pods, with a podrun and a driver, both of which are killed at any instruction.
type history struct {
	*machine
	r      *rand.Rand
	dir    string
	podrun *exec.Cmd
	server *exec.Cmd
	orders io.Writer

	mu sync.Mutex
	// wanted are the pods that are to have their volumes, and removing those that are to be gone. paths are where the
	// volumes of the former are mounted.
	wanted, removing map[string]bool
	paths            map[string]string
}

// TestRandomHistories: podrun and the driver are killed, each at any instruction, while several pods come and go. A pod
// keeps the volume that it has; in the end each has its own; and after that nothing is left. Unlike in the simulation in
// virtual time, calls of drivers go through sockets, and what they have done is asked of the kernel.
func TestRandomHistories(t *testing.T) {
	for n := range *seeds {
		seed := *from + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := staging(t)
			m.stop()
			m.kill()
			h := &history{
				machine: m, r: rand.New(rand.NewPCG(seed, 1)), dir: filepath.Dir(m.kubelet),
				wanted: map[string]bool{}, removing: map[string]bool{}, paths: map[string]string{},
			}
			h.startPodrun()
			h.startDriver()
			t.Cleanup(func() { end(h.podrun); end(h.server) })
			for range 60 {
				h.step()
				h.kept()
			}
			h.startDriver()
			h.quiet()
			if t.Failed() {
				t.Logf("more like it: go test -run TestRandomHistories -csi-seeds=20 -csi-from=%d", seed)
			}
		})
	}
}

// child begins this program as a child.
func (h *history) child(role string) *exec.Cmd {
	self, err := os.Executable()
	test.Must(h.t, err)
	c := exec.Command(self) //nolint:gosec // this program
	c.Env = append(os.Environ(), childOf+"="+role+":"+h.dir)
	c.Stderr = os.Stderr
	return c
}

// end kills a child.
func end(c *exec.Cmd) {
	if c != nil && c.ProcessState == nil {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

func (h *history) startDriver() {
	end(h.server)
	h.server = h.child("driver")
	test.Must(h.t, h.server.Start())
}

// startPodrun begins a podrun, which is told again what it has not done.
func (h *history) startPodrun() {
	end(h.podrun)
	h.podrun = h.child("podrun")
	orders, err := h.podrun.StdinPipe()
	test.Must(h.t, err)
	answers, err := h.podrun.StdoutPipe()
	test.Must(h.t, err)
	test.Must(h.t, h.podrun.Start())
	h.orders = orders
	go h.listen(answers)
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid := range h.wanted {
		h.order("want", uid)
	}
	for uid := range h.removing {
		h.order("remove", uid)
	}
}

func (h *history) order(what, uid string) { _, _ = fmt.Fprintln(h.orders, what, uid) }

// listen takes note of what podrun has done.
func (h *history) listen(answers io.Reader) {
	for in := bufio.NewScanner(answers); in.Scan(); {
		uid, path, _ := strings.Cut(in.Text(), " ")
		h.mu.Lock()
		switch {
		case path == "-":
			delete(h.removing, uid)
		case h.wanted[uid]:
			h.paths[uid] = path
		}
		h.mu.Unlock()
	}
}

// step is something that happens.
func (h *history) step() {
	uid := fmt.Sprintf("u%d", 1+h.r.IntN(5))
	h.mu.Lock()
	switch h.r.IntN(8) {
	case 0, 1, 2:
		if !h.wanted[uid] && !h.removing[uid] {
			h.wanted[uid] = true
			h.order("want", uid)
		}
	case 3, 4:
		if h.wanted[uid] {
			delete(h.wanted, uid)
			delete(h.paths, uid)
			h.removing[uid] = true
			h.order("remove", uid)
		}
	}
	h.mu.Unlock()
	// A call that takes long is one during which something else happens.
	calls := []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}
	hang := h.driver.Path("hang-" + calls[h.r.IntN(len(calls))])
	hangs := h.r.IntN(3) == 0
	if hangs {
		test.Must(h.t, os.WriteFile(hang, nil, 0o600))
	}
	time.Sleep(time.Duration(h.r.Int64N(int64(60 * time.Millisecond))))
	of := h.r.IntN(8)
	if hangs {
		defer func() { test.Must(h.t, os.Remove(hang)) }()
	}
	switch of {
	case 0, 1:
		h.startPodrun()
	case 2:
		end(h.server)
	case 3:
		h.startDriver()
	}
}

// kept fails if a volume that a pod has is not mounted any more.
func (h *history) kept() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, path := range h.paths {
		if mounted, err := mountinfo.Mounted(path); err != nil || !mounted {
			h.t.Errorf("%s: %s is not mounted: %v", uid, path, err)
		}
	}
}

// quiet waits until every pod has its volume, and then until nothing is left of any.
func (h *history) quiet() {
	h.t.Helper()
	test.Eventually(h.t, "every pod to have its volume, and no other one", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		all, err := csi.Records(h.dirs)
		if err != nil || len(h.paths) != len(h.wanted) || len(h.removing) > 0 || len(all) != len(h.wanted) {
			return false
		}
		for _, r := range all {
			if !r.Published || r.Released {
				return false
			}
		}
		return true
	})
	h.kept()
	h.mu.Lock()
	for uid := range h.wanted {
		h.removing[uid] = true
		h.order("remove", uid)
	}
	clear(h.wanted)
	clear(h.paths)
	h.mu.Unlock()
	h.await("")
	h.unstaged()
	inline, err := filepath.Glob(filepath.Join(h.driver.Dir, "volumes", "*", "seen.json"))
	test.Must(h.t, err)
	mounted, err := mountinfo.GetMounts(mountinfo.PrefixFilter(h.dir))
	test.Must(h.t, err)
	for _, m := range mounted {
		if m.Mountpoint != h.kubelet {
			h.t.Errorf("still mounted: %s", m.Mountpoint)
		}
	}
	if len(inline) > 0 {
		h.t.Errorf("the driver still has %q", inline)
	}
}
