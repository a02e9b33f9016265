package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
)

// machine is what there is: sandboxes, manifests and hosts files.
type machine struct {
	mu      sync.Mutex
	records map[pod.Key][]*checkpoint.Checkpoint
	pods    map[pod.UID]*v1.Pod
	files   map[pod.UID]string
	writes  int
	fail    error
	busy    map[pod.UID]error // fails to be written
	hangs   map[pod.UID]chan struct{}
	names   *Names
}

func newMachine() *machine {
	m := &machine{records: map[pod.Key][]*checkpoint.Checkpoint{}, pods: map[pod.UID]*v1.Pod{}, files: map[pod.UID]string{}}
	m.names = New(Options{Checkpoints: m, Boot: "boot", ClusterDomain: "cluster.local", HostIP: func() string { return "192.0.2.2" }, Log: slog.New(slog.DiscardHandler)})
	return m
}

func (m *machine) List() (map[pod.Key][]*checkpoint.Checkpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.records), m.fail
}

func (m *machine) RefreshHosts(p *v1.Pod, _ pod.Sandbox) error {
	if hangs := m.hangs[p.UID]; hangs != nil {
		<-hangs
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.busy[p.UID]; err != nil {
		return err
	}
	m.files[p.UID] = fingerprint(m.names.Of(p))
	m.writes++
	return nil
}

// add starts a pod named <name>-n, in namespace default unless name says another.
func (m *machine) add(name, ip string, spec v1.PodSpec) *v1.Pod {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	spec.NodeName = "n"
	uid := pod.UID(fmt.Sprintf("%s-%d", name, len(m.pods)))
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: short + "-n", UID: uid}, Spec: spec}
	r := pod.Sandbox{ID: string(uid), UID: uid, Boot: "boot", Details: pod.SandboxDetails{Complete: true}}
	if ip != "" {
		r.IPs = []string{ip}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods[uid] = p
	m.records[pod.KeyOf(p)] = append([]*checkpoint.Checkpoint{{Pod: p, Sandboxes: []pod.Sandbox{r}}}, m.records[pod.KeyOf(p)]...)
	return p
}

func TestNames(t *testing.T) {
	m := newMachine()
	a := m.add("a", "10.0.0.1", v1.PodSpec{})
	b := m.add("b", "10.0.0.2", v1.PodSpec{Hostname: "h", Subdomain: "s"})
	other := m.add("far/c", "10.0.0.3", v1.PodSpec{})
	host := m.add("far/d", "", v1.PodSpec{HostNetwork: true})
	m.records[pod.Key{Namespace: "default", Name: "e-n"}] = []*checkpoint.Checkpoint{{Pod: &v1.Pod{}, Sandboxes: []pod.Sandbox{{Boot: "boot"}}}} // half made
	if err := m.names.refresh(m, map[pod.UID]string{}, nil); err != nil {
		t.Fatal(err)
	}
	const (
		aLong = "a.default a-n.default"
		bLong = "b.default b-n.default h.default h.s.default h.s.default.svc h.s.default.svc.cluster.local"
		far   = "10.0.0.3 c.far c-n.far\n"
		farD  = "192.0.2.2 d.far d-n.far\n"
	)
	for p, want := range map[*v1.Pod]string{
		a:     "10.0.0.2 b b-n h h.s " + bLong + "\n" + far + farD,
		b:     "10.0.0.1 a a-n " + aLong + "\n" + far + farD,
		other: "10.0.0.1 " + aLong + "\n10.0.0.2 " + bLong + "\n192.0.2.2 d d-n d.far d-n.far\n",
		host:  "10.0.0.1 " + aLong + "\n10.0.0.2 " + bLong + "\n10.0.0.3 c c-n c.far c-n.far\n",
	} {
		if m.files[p.UID] != want {
			t.Errorf("%s:\n%swant\n%s", p.Name, m.files[p.UID], want)
		}
	}
}

// TestForeignNames: no pod takes a name that others have outside of the machine, in its own namespace
// or another.
func TestForeignNames(t *testing.T) {
	m := newMachine()
	m.names.o.ClusterDomain = "k8s.example.com"
	node := func(p *v1.Pod, name string) {
		p.Name = strings.TrimSuffix(p.Name, "n") + name
		p.Spec.NodeName = name
	}
	m.add("com/github", "10.0.0.1", v1.PodSpec{})
	m.add("com/any", "10.0.0.2", v1.PodSpec{Hostname: "www", Subdomain: "example"})
	m.add("a/www.github.com", "10.0.0.3", v1.PodSpec{HostnameOverride: new("api.github.com")})
	m.add("a/b", "10.0.0.4", v1.PodSpec{Hostname: "github", Subdomain: "com"})
	m.add("internal/git.company", "10.0.0.5", v1.PodSpec{})
	node(m.add("a/c", "10.0.0.6", v1.PodSpec{}), "n1.example.com")
	near, far := m.add("a/reader", "", v1.PodSpec{}), m.add("z/reader", "", v1.PodSpec{})
	if err := m.names.refresh(m, map[pod.UID]string{}, nil); err != nil {
		t.Fatal(err)
	}
	const (
		com = "10.0.0.2 any.com.pod.k8s.example.com any-n.com.pod.k8s.example.com www.com.pod.k8s.example.com" +
			" www.example.com.svc www.example.com.svc.k8s.example.com\n" +
			"10.0.0.1 github.com.pod.k8s.example.com github-n.com.pod.k8s.example.com\n"
		dotted   = "www.github.com.a www.github.com-n.a api.github.com.a\n"
		hostname = "b.a b-n.a github.a github.com.a github.com.a.svc github.com.a.svc.k8s.example.com\n"
		ofNode   = "c.a c-n1.example.com.a\n"
		private  = "10.0.0.5 git.company.internal.pod.k8s.example.com git.company-n.internal.pod.k8s.example.com\n"
	)
	for p, want := range map[*v1.Pod]string{
		near: "10.0.0.4 b b-n github " + hostname + "10.0.0.6 c c-n1.example.com " + ofNode + "10.0.0.3 www.github.com-n " + dotted + com + private,
		far:  "10.0.0.4 " + hostname + "10.0.0.6 " + ofNode + "10.0.0.3 " + dotted + com + private,
	} {
		if m.files[p.UID] != want {
			t.Errorf("%s:\n%swant\n%s", p.Namespace, m.files[p.UID], want)
		}
	}
}

// TestBusyFile: a container that executes its /etc/hosts, so that nobody can write to it, keeps no
// other pod from an update; its own follows.
func TestBusyFile(t *testing.T) {
	m := newMachine()
	a := m.add("a", "10.0.0.1", v1.PodSpec{})
	b := m.add("b", "10.0.0.2", v1.PodSpec{})
	c := m.add("c", "10.0.0.3", v1.PodSpec{})
	m.busy = map[pod.UID]error{a.UID: unix.ETXTBSY, b.UID: unix.EROFS}
	written := map[pod.UID]string{}
	if err := m.names.refresh(m, written, nil); !errors.Is(err, unix.ETXTBSY) || !errors.Is(err, unix.EROFS) {
		t.Error(err)
	}
	if !strings.Contains(m.files[c.UID], "10.0.0.1 a ") {
		t.Errorf("c's: %q", m.files[c.UID])
	}
	m.busy = nil
	if err := m.names.refresh(m, written, nil); err != nil || m.files[a.UID] == "" || m.files[b.UID] == "" || m.writes != 3 {
		t.Errorf("%d writes, %v, %v", m.writes, m.files, err)
	}
}

// TestHungFile: a container writes to its hosts file without end, and so the kernel lets nobody else write to it. Others
// get the names, podrun can end, and the file is written when it can be.
func TestHungFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		a := m.add("a", "10.0.0.1", v1.PodSpec{})
		b := m.add("b", "10.0.0.2", v1.PodSpec{})
		m.hangs = map[pod.UID]chan struct{}{a.UID: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.names.Run(ctx, m) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		m.mu.Lock()
		if m.files[b.UID] == "" || m.writes != 1 {
			t.Errorf("%d writes, %q", m.writes, m.files)
		}
		m.mu.Unlock()
		close(m.hangs[a.UID])
		time.Sleep(time.Minute)
		synctest.Wait()
		if m.files[a.UID] == "" {
			t.Errorf("a's file is not written, although it can be: %q", m.files)
		}
		m.hangs = map[pod.UID]chan struct{}{b.UID: make(chan struct{})}
		defer close(m.hangs[b.UID])
		c := m.add("c", "10.0.0.3", v1.PodSpec{})
		m.names.SetIPs(pod.KeyOf(c), []v1.PodIP{{IP: "10.0.0.3"}})
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestAtStart: a pod that starts because another one is ready has that one's name, even if files of
// other pods are still to be written.
func TestAtStart(t *testing.T) {
	m := newMachine()
	app := m.add("app", "10.0.0.1", v1.PodSpec{})
	m.add("db", "10.0.0.2", v1.PodSpec{})
	if got := m.names.AtStart(app); len(got) > 0 {
		t.Errorf("of a pod that waits for none: %v", got)
	}
	app.Annotations = map[string]string{pod.AnnotationAfter: "db"}
	if got := fingerprint(m.names.AtStart(app)); !strings.HasPrefix(got, "10.0.0.2 db ") || m.writes > 0 {
		t.Errorf("%q, %d writes", got, m.writes)
	}
	m.fail = errors.New("not now")
	if len(m.names.AtStart(app)) == 0 {
		t.Error("forgotten")
	}
}

// TestRun: a change is written to the files soon, many changes at once are written once, and a
// failed update is repeated.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		a := m.add("a", "10.0.0.1", v1.PodSpec{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.names.Run(ctx, m) }()
		synctest.Wait()
		if m.writes != 1 {
			t.Fatalf("%d files written at first", m.writes)
		}
		for i := range 20 {
			p := m.add(fmt.Sprintf("p%d", i), fmt.Sprintf("10.0.1.%d", i), v1.PodSpec{})
			m.names.SetIPs(pod.KeyOf(p), []v1.PodIP{{IP: fmt.Sprintf("10.0.1.%d", i)}})
		}
		time.Sleep(2 * settle)
		synctest.Wait()
		if m.writes != 22 || strings.Count(m.files[a.UID], "\n") != 20 {
			t.Errorf("%d files written; a's:\n%s", m.writes, m.files[a.UID])
		}
		m.names.SetIPs(pod.KeyOf(a), []v1.PodIP{{IP: "10.0.0.1"}}) // no news
		time.Sleep(2 * settle)
		synctest.Wait()
		if m.writes != 22 {
			t.Errorf("%d files written without news", m.writes)
		}
		// A new sandbox has a new address; List fails for a while.
		m.mu.Lock()
		m.fail = errors.New("busy")
		moved := pod.Key{Namespace: "default", Name: "p2-n"}
		m.records[moved][0].Sandboxes[0].IPs = []string{"10.0.2.2"}
		m.mu.Unlock()
		m.names.SetIPs(moved, []v1.PodIP{{IP: "10.0.2.2"}})
		time.Sleep(time.Minute)
		m.mu.Lock()
		m.fail = nil
		m.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(m.files[a.UID], "10.0.2.2 p2 p2-n") {
			t.Errorf("a's:\n%s", m.files[a.UID])
		}
		m.mu.Lock()
		delete(m.records, moved)
		m.mu.Unlock()
		m.names.SetIPs(moved, nil)
		time.Sleep(2 * settle)
		synctest.Wait()
		if strings.Contains(m.files[a.UID], "p2-n") {
			t.Errorf("a's:\n%s", m.files[a.UID])
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func fingerprint(entries []pod.HostEntry) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.IP + " " + strings.Join(e.Names, " ") + "\n")
	}
	return b.String()
}
