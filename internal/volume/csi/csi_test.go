package csi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/test/testcsi"
	"podrun.io/podrun/internal/volume/csi"
)

const driverName = "inline.csi.example.com"

// machine is a machine with a driver and a podrun.
type machine struct {
	t        *testing.T
	dirs     layout.Dirs
	kubelet  string
	driver   *testcsi.Driver
	drivers  *csi.Drivers
	changes  chan struct{}
	owned    atomic.Int64
	block    bool // its PersistentVolume is a device
	endServe func()
	end      func()
}

func newMachine(t *testing.T) *machine {
	if os.Geteuid() != 0 {
		t.Skip("mounts: needs root")
	}
	dir, err := os.MkdirTemp("", "csi") // short enough for sockets
	test.Must(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			test.Must(t, os.RemoveAll(dir))
		}
	})
	m := &machine{
		t: t, kubelet: filepath.Join(dir, "k"),
		dirs:   layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")},
		driver: &testcsi.Driver{Name: driverName, Node: "this-node", Dir: filepath.Join(dir, "k", "plugins", "d"), Registry: filepath.Join(dir, "k", "plugins_registry")},
	}
	for _, d := range []string{m.dirs.Root, m.dirs.Run, m.dirs.Pods(), m.driver.Dir, m.driver.Registry} {
		test.Must(t, os.MkdirAll(d, 0o700))
	}
	t.Cleanup(func() {
		m.stop()
		m.kill()
		mounted, _ := filepath.Glob(filepath.Join(m.kubelet, "pods/*/volumes/kubernetes.io~csi/*/mount"))
		for _, at := range mounted {
			_ = sys.Unmount(at)
		}
	})
	return m
}

// serving returns a machine with both running.
func serving(t *testing.T) *machine {
	m := newMachine(t)
	m.start()
	m.serve()
	return m
}

// serve starts the driver; kill ends it.
func (m *machine) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.driver.Serve(ctx) }()
	m.endServe = func() { cancel(); <-done }
}

func (m *machine) kill() {
	if m.endServe != nil {
		m.endServe()
		m.endServe = nil
	}
}

// start starts a podrun; stop ends it.
func (m *machine) start() {
	m.drivers = csi.New(csi.Options{
		Dirs: m.dirs, Dir: m.kubelet, Log: slog.New(slog.DiscardHandler),
		Own: func(context.Context, *v1.Pod, string) error { m.owned.Add(1); return nil },
	})
	m.changes = make(chan struct{}, 1)
	changes := m.changes
	m.drivers.OnChange(func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	registry := pluginregistry.New(pluginregistry.Options{
		File:     filepath.Join(m.kubelet, "refused.json"),
		Dir:      filepath.Join(m.kubelet, "plugins_registry"),
		Handlers: map[string]pluginregistry.Handler{registration.CSIPlugin: m.drivers}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = registry.Run(ctx); done <- struct{}{} }()
	go func() { _ = m.drivers.Run(ctx); done <- struct{}{} }()
	m.end = func() { cancel(); <-done; <-done }
}

func (m *machine) stop() {
	if m.end != nil {
		m.end()
		m.end = nil
	}
}

// request asks for a volume of a pod, whose directory is there.
func (m *machine) request(uid string) csi.Request {
	m.t.Helper()
	test.Must(m.t, os.MkdirAll(m.dirs.Pod(pod.UID(uid)), 0o700))
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: pod.UID(uid)}}
	return csi.Request{Pod: p, Volume: "data", Source: &v1.CSIVolumeSource{Driver: driverName, VolumeAttributes: map[string]string{"a": "b"}}}
}

// remove releases the volumes of a pod, and removes its directory.
func (m *machine) remove(uid string) {
	m.t.Helper()
	test.Must(m.t, m.drivers.Release(m.t.Context(), pod.UID(uid)))
	test.Must(m.t, os.RemoveAll(m.dirs.Pod(pod.UID(uid))))
}

func (m *machine) records() string {
	all, err := csi.Records(m.dirs)
	test.Must(m.t, err)
	var out []string
	for _, r := range all {
		out = append(out, string(r.UID)+" published="+strconv.FormatBool(r.Published)+" released="+strconv.FormatBool(r.Released))
	}
	return strings.Join(out, ", ")
}

// has fails unless there are those records.
func (m *machine) has(want string) {
	m.t.Helper()
	if got := m.records(); got != want {
		m.t.Errorf("records: %s, want %s", got, want)
	}
}

// await waits until there are those records.
func (m *machine) await(want string) {
	m.t.Helper()
	test.Eventually(m.t, "records "+want, func() bool { return m.records() == want })
}

// published publishes until that succeeds.
func (m *machine) published(r csi.Request) csi.Published {
	m.t.Helper()
	var p csi.Published
	test.Eventually(m.t, "the volume to be published", func() bool {
		var err error
		p, err = m.drivers.Publish(m.t.Context(), r)
		return err == nil
	})
	return p
}

func seen(t *testing.T, p csi.Published) (s testcsi.Seen) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Path, "seen.json"))
	test.Must(t, err)
	test.Must(t, json.Unmarshal(text, &s))
	return s
}

// fail makes a call of the driver fail with a code; OK: not any more.
func (m *machine) fail(call string, code codes.Code) {
	m.t.Helper()
	at := m.driver.Path("fail-" + call)
	if code == codes.OK {
		test.Must(m.t, os.Remove(at))
		return
	}
	test.Must(m.t, os.WriteFile(at, []byte(strconv.Itoa(int(code))), 0o600))
}

func (m *machine) nothingLeft() {
	m.t.Helper()
	left, err := filepath.Glob(filepath.Join(m.kubelet, "pods", "*"))
	test.Must(m.t, err)
	volumes, err := filepath.Glob(filepath.Join(m.driver.Dir, "volumes", "*"))
	test.Must(m.t, err)
	if all := append(left, volumes...); len(all) > 0 {
		m.t.Errorf("left: %q", all)
	}
}

// TestForgedAttributes: a pod's author does not give a driver what only podrun and an API server say of a pod.
func TestForgedAttributes(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.serve()
	m.registered()
	r := m.request("u1")
	for _, name := range []string{
		"ephemeral", "pod.name", "pod.namespace", "pod.uid", "serviceAccount.name", "serviceAccount.tokens",
	} {
		r.Source.VolumeAttributes["csi.storage.k8s.io/"+name] = "forged"
	}
	got := seen(t, m.published(r)).Context
	for name, value := range got {
		if value == "forged" {
			t.Errorf("the driver was told a forged %s", name)
		}
	}
	if got["a"] != "b" || r.Source.VolumeAttributes["csi.storage.k8s.io/pod.name"] != "forged" {
		t.Errorf("told %v, and the manifest's attributes are changed: %v", got, r.Source.VolumeAttributes)
	}
	m.remove("u1")
}

// TestPublish: what a driver is told, and that it is called once.
func TestPublish(t *testing.T) {
	m := newMachine(t)
	m.start()
	r := m.request("u1")
	if _, err := m.drivers.Publish(t.Context(), r); err == nil || !strings.Contains(err.Error(), "has not registered") {
		t.Errorf("without a driver: %v", err)
	}
	m.serve()
	select {
	case <-m.changes:
	case <-time.After(10 * time.Second):
		t.Fatal("the driver's registration wakes nobody")
	}
	p := m.published(r)
	got := seen(t, p)
	want := testcsi.Seen{
		ID: got.ID, Mode: "SINGLE_NODE_WRITER", Times: 1,
		Context: map[string]string{
			"a": "b", "csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "pod-u1",
			"csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": "u1",
			"csi.storage.k8s.io/serviceAccount.name": "default",
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the driver was told %+v, want %+v", got, want)
	}
	if at := filepath.Join(m.kubelet, "pods/u1/volumes/kubernetes.io~csi/data/mount"); p.Path != at {
		t.Errorf("at %s, want %s", p.Path, at)
	}
	m.published(r)
	if n := seen(t, p).Times; n != 1 {
		t.Errorf("published %d times", n)
	}
	fs, used, err := m.drivers.Usage(t.Context(), "u1", "data")
	if err != nil || fs.Capacity != 1<<30 || fs.Available != 1<<30-1<<20 || used.Bytes != 1<<20 {
		t.Errorf("usage %+v, %+v, %v", fs, used, err)
	}
	if _, _, err := m.drivers.Usage(t.Context(), "u1", "other"); !errors.Is(err, csi.ErrNoStats) {
		t.Errorf("of no volume: %v", err)
	}
	// Another podrun does not call the driver for what is mounted.
	m.stop()
	m.start()
	m.published(r)
	if n := seen(t, p).Times; n != 1 {
		t.Errorf("published %d times after a restart", n)
	}
	m.remove("u1")
	m.has("")
	m.nothingLeft()
}

// TestVolumesOfSimilarUIDs: an author chooses a UID with which the ID of their volume would be another's.
func TestVolumesOfSimilarUIDs(t *testing.T) {
	m := serving(t)
	victim, attacker := m.request("u1"), m.request("u1d")
	attacker.Volume = "ata"
	if a, b := seen(t, m.published(victim)).ID, seen(t, m.published(attacker)).ID; a == b {
		t.Errorf("two volumes with the ID %s", a)
	}
	m.remove("u1d")
	if _, err := os.Stat(filepath.Join(m.kubelet, "pods/u1/volumes/kubernetes.io~csi/data/mount/seen.json")); err != nil {
		t.Error("the volume of another pod is gone")
	}
	m.remove("u1")
	m.nothingLeft()
}

// TestReadOnly: fsType, secrets, read-only, and the pod's group as the driver sees them.
func TestReadOnly(t *testing.T) {
	m := newMachine(t)
	m.driver.Groups = true
	m.start()
	m.serve()
	r := m.request("u1")
	yes, ext4, group := true, "ext4", int64(2000)
	r.Source.ReadOnly, r.Source.FSType, r.Secrets = &yes, &ext4, map[string]string{"k": "v"}
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	p := m.published(r)
	got := seen(t, p)
	if !got.ReadOnly || got.FSType != "ext4" || got.Secrets["k"] != "v" || got.Group != "2000" || !p.ReadOnly || m.owned.Load() > 0 {
		t.Errorf("%+v, %+v", got, p)
	}
	m.remove("u1")
	m.nothingLeft()
}

// TestOwnable: who gives the volume to the pod's group, by policy, and that it is done whenever the driver was called.
func TestOwnable(t *testing.T) {
	m := serving(t)
	ext4 := "ext4"
	for i, c := range []struct {
		policy pod.FSGroupPolicy
		fsType *string
		want   int
	}{{"", nil, 0}, {"", &ext4, 1}, {pod.FSGroupNone, &ext4, 0}, {pod.FSGroupFile, nil, 1}, {pod.FSGroupWithFSType, nil, 0}} {
		uid := "u" + strconv.Itoa(i)
		r := m.request(uid)
		r.Source.FSType = c.fsType
		if c.policy != "" {
			r.Driver = document(func(s *pod.CSIDriverSpec) { s.FSGroupPolicy = &c.policy })
		}
		m.owned.Store(0)
		p := m.published(r)
		m.published(r)
		if got := int(m.owned.Load()); got != c.want {
			t.Errorf("%q, %v: given to the group %d times", c.policy, c.fsType, got)
		}
		test.Must(t, sys.Unmount(p.Path)) // as by the end of a driver that has it in its memory
		m.published(r)
		if got := int(m.owned.Load()); got != 2*c.want {
			t.Errorf("%q, %v: given to the group %d times after it was mounted again", c.policy, c.fsType, got)
		}
		m.remove(uid)
	}
}

// TestRestartWithLess: a container whose volume is mounted needs neither its Secret nor the CSIDriver document.
func TestRestartWithLess(t *testing.T) {
	m := serving(t)
	r := m.request("u1")
	m.published(r)
	r.Lacks = errors.New("secret not found")
	m.published(r)
	r.Lacks, r.Driver = nil, document(func(s *pod.CSIDriverSpec) { s.VolumeLifecycleModes = nil })
	m.published(r)
	r = m.request("u2")
	r.Lacks = errors.New("secret not found")
	if _, err := m.drivers.Publish(t.Context(), r); !errors.Is(err, r.Lacks) {
		t.Errorf("without its Secret: %v", err)
	}
	m.remove("u1")
	m.nothingLeft()
}

// TestRemovedAndBack: pods are removed while their driver is away, and come back with the same UIDs: none of them loses
// the volume that it has then.
func TestRemovedAndBack(t *testing.T) {
	m := serving(t)
	const pods = 60
	var all []csi.Request
	for i := range pods {
		all = append(all, m.request("u"+strconv.Itoa(i)))
		m.published(all[i])
	}
	m.kill()
	for _, r := range all {
		m.remove(string(r.Pod.UID))
		m.request(string(r.Pod.UID))
	}
	var running sync.WaitGroup
	for _, r := range all {
		running.Go(func() { m.published(r) })
	}
	m.serve()
	running.Wait()
	time.Sleep(3 * time.Second) // until nobody looks any more
	for _, r := range all {
		if _, err := os.Stat(filepath.Join(m.kubelet, "pods", string(r.Pod.UID), "volumes/kubernetes.io~csi/data/mount/seen.json")); err != nil {
			t.Errorf("a pod that runs has lost its volume: %v", err)
		}
	}
	if got := m.records(); strings.Contains(got, "released=true") || strings.Contains(got, "published=false") {
		t.Errorf("records: %s", got)
	}
	for _, r := range all {
		m.remove(string(r.Pod.UID))
	}
	m.nothingLeft()
}

// TestOverdue: a driver that hangs keeps many pods waiting for no longer than one.
func TestOverdue(t *testing.T) {
	m := serving(t)
	const pods = 20
	for i := range pods {
		m.published(m.request("u" + strconv.Itoa(i)))
	}
	at := m.driver.Path("hang-NodeUnpublishVolume")
	test.Must(t, os.WriteFile(at, nil, 0o600))
	began := time.Now()
	for i := range pods {
		m.remove("u" + strconv.Itoa(i))
	}
	if took := time.Since(began); took > 20*time.Second { // each by itself: a minute
		t.Errorf("it took %v", took)
	}
	test.Must(t, os.Remove(at))
	m.await("")
	m.nothingLeft()
}

// TestUnreadableRecord: a record that cannot be read is no reason to leave the others.
func TestUnreadableRecord(t *testing.T) {
	m := serving(t)
	m.published(m.request("u1"))
	test.Must(t, os.WriteFile(filepath.Join(layout.CSIVolumes(m.dirs), "u0_data.json"), []byte("{"), 0o600))
	m.remove("u0")
	m.remove("u1")
	m.nothingLeft()
	if all, err := csi.Records(m.dirs); len(all) != 0 || err == nil {
		t.Errorf("%v, %v", all, err)
	}
}

func document(change func(*pod.CSIDriverSpec)) *pod.CSIDriver {
	d := &pod.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}}
	d.Spec.VolumeLifecycleModes = []pod.VolumeLifecycleMode{pod.VolumeEphemeral}
	change(&d.Spec)
	return d
}

// TestDocuments: a CSIDriver document is obeyed.
func TestDocuments(t *testing.T) {
	m := serving(t)
	for want, change := range map[string]func(*pod.CSIDriverSpec){
		"volumeLifecycleMode Ephemeral": func(s *pod.CSIDriverSpec) { s.VolumeLifecycleModes = nil },
		"no API server":                 func(s *pod.CSIDriverSpec) { s.TokenRequests = []pod.CSITokenRequest{{Audience: "a"}} },
	} {
		r := m.request("u1")
		r.Driver = document(change)
		if _, err := m.drivers.Publish(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	m.has("")
}

// TestFailures: after an error that is final nothing is left; after one that is not the volume is unpublished with its
// pod, for it may be mounted.
func TestFailures(t *testing.T) {
	m := serving(t)
	m.published(m.request("u0"))
	m.fail("NodePublishVolume", codes.InvalidArgument)
	if _, err := m.drivers.Publish(t.Context(), m.request("u1")); err == nil ||
		!strings.Contains(err.Error(), "CSI driver "+driverName+": NodePublishVolume: ") {
		t.Errorf("got %v", err)
	}
	m.has("u0 published=true released=false")
	m.fail("NodePublishVolume", codes.Unavailable)
	if _, err := m.drivers.Publish(t.Context(), m.request("u1")); err == nil {
		t.Error("it succeeded")
	}
	m.has("u0 published=true released=false, u1 published=false released=false")
	m.fail("NodePublishVolume", codes.InvalidArgument) // does not say that the first call had no effect
	if _, err := m.drivers.Publish(t.Context(), m.request("u1")); err == nil {
		t.Error("it succeeded")
	}
	m.remove("u1") // NOT_FOUND is as good as unpublished
	m.fail("NodePublishVolume", codes.OK)
	m.remove("u0")
	m.has("")
	m.nothingLeft()
}

// TestDriverGone: a driver that is gone keeps no pod from being removed. Its volumes are unpublished when it is back,
// whether podrun has been restarted meanwhile or not, and before another pod with the same UID gets them.
func TestDriverGone(t *testing.T) {
	m := serving(t)
	for _, uid := range []string{"u1", "u2"} {
		m.published(m.request(uid))
	}
	m.kill()
	m.remove("u1")
	m.remove("u2")
	const both = "u1 published=true released=true, u2 published=true released=true"
	m.has(both)
	if _, err := m.drivers.Publish(t.Context(), m.request("u2")); err == nil || !strings.Contains(err.Error(), "the pod that had it before") {
		t.Errorf("the same UID: %v", err)
	}
	m.stop()
	m.start()
	m.has(both)
	m.serve()
	m.await("")
	m.nothingLeft()
}

// TestPodGone: podrun is killed after it has removed a pod whose driver it was calling.
func TestPodGone(t *testing.T) {
	m := serving(t)
	m.published(m.request("u1"))
	m.published(m.request("u2"))
	m.stop()
	test.Must(t, os.RemoveAll(m.dirs.Pod("u1")))
	m.start()
	m.await("u2 published=true released=false")
	m.remove("u2")
	m.nothingLeft()
}

// TestReboot: mounts are gone, and what the driver keeps is not.
func TestReboot(t *testing.T) {
	m := serving(t)
	r := m.request("u1")
	p := m.published(r)
	m.stop()
	m.kill()
	test.Must(t, sys.Unmount(p.Path))
	m.start()
	m.serve()
	if n := seen(t, m.published(r)).Times; n != 2 {
		t.Errorf("published %d times", n)
	}
	m.remove("u1")
	m.nothingLeft()
}

// TestHanging: a call that does not return blocks nobody, and its end is noticed.
func TestHanging(t *testing.T) {
	m := serving(t)
	m.published(m.request("u0"))
	hang := func(call string) func() {
		at := m.driver.Path("hang-" + call)
		test.Must(t, os.WriteFile(at, nil, 0o600))
		return func() { test.Must(t, os.Remove(at)) }
	}
	publishes := hang("NodePublishVolume")
	r := m.request("u1")
	if _, err := m.drivers.Publish(t.Context(), r); err == nil || !strings.Contains(err.Error(), "has not answered yet") {
		t.Errorf("got %v", err)
	}
	m.published(m.request("u0")) // does not wait for the other one
	select {
	case <-m.changes:
	default:
	}
	publishes()
	select {
	case <-m.changes:
	case <-time.After(10 * time.Second):
		t.Error("the end of the call wakes nobody")
	}
	m.published(r)
	unpublishes := hang("NodeUnpublishVolume")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	test.Must(t, m.drivers.Release(ctx, "u1"))
	test.Must(t, os.RemoveAll(m.dirs.Pod("u1")))
	unpublishes()
	m.await("u0 published=true released=false")
	m.remove("u0")
	m.nothingLeft()
}

// TestStillMounted: a driver that says that it has unmounted and has not is not believed.
func TestStillMounted(t *testing.T) {
	m := serving(t)
	p := m.published(m.request("u1"))
	const hidden = 5 // times, because each call, and it is called again at once, ends one of these mounts
	for range hidden {
		test.Must(t, sys.BindOne(m.driver.Dir, p.Path)) // hides the driver's mount
	}
	m.remove("u1")
	m.has("u1 published=true released=true")
	if _, err := os.Stat(filepath.Join(m.driver.Dir, "csi.sock")); err != nil {
		t.Error("what is mounted there is removed")
	}
	for range hidden + 1 {
		_ = sys.Unmount(p.Path)
	}
	m.await("")
}

// TestEndpoints: only sockets below the plugins' directory are called, and only versions that are known.
func TestEndpoints(t *testing.T) {
	m := newMachine(t)
	m.start()
	outside := filepath.Join(filepath.Dir(m.kubelet), "outside.sock")
	for _, c := range []struct{ name, endpoint, version, want string }{
		{driverName, outside, "1.0.0", "is not below"},
		{driverName, filepath.Join(m.kubelet, "..", "outside.sock"), "1.0.0", "is not below"},
		{driverName, filepath.Join(m.kubelet, "d.sock"), "2.0.0", "its versions are [2.0.0]"},
		{"a/b", filepath.Join(m.kubelet, "d.sock"), "1.0.0", "its name"},
	} {
		err := m.drivers.Register(t.Context(), c.name, c.endpoint, []string{c.version})
		if !errors.Is(err, pluginregistry.ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestWhyRefused: a pod that waits for a driver that was refused says why, until it has registered.
func TestWhyRefused(t *testing.T) {
	m := newMachine(t)
	m.start()
	refused := m.drivers.Register(t.Context(), driverName, filepath.Join(m.kubelet, "d.sock"), []string{"0.3.0"})
	r := m.request("u1")
	_, err := m.drivers.Publish(t.Context(), r)
	want := "the CSI driver " + driverName + " was refused: the plugin cannot be used: its versions are [0.3.0], and 1.x are"
	if refused == nil || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, %v", refused, err)
	}
	select {
	case <-m.changes:
	default:
		t.Error("who waits for it is not woken")
	}
	m.serve()
	m.registered()
	m.published(r)
	m.kill()
	if _, err := m.drivers.Publish(t.Context(), m.request("u2")); err == nil || strings.Contains(err.Error(), "refused") {
		t.Errorf("after it was used: %v", err)
	}
}

// TestRefused: a driver whose name is none is told so.
func TestRefused(t *testing.T) {
	m := newMachine(t)
	m.driver.Name = "not_a_name"
	m.start()
	m.serve()
	test.Eventually(t, "the driver to be refused", func() bool {
		_, err := os.Stat(m.driver.Path("refused"))
		return err == nil
	})
}

// TestLinkOnTheWay: a driver cannot lead podrun to what is elsewhere on the machine: it is not given to the pod's group,
// nor to the pod.
func TestLinkOnTheWay(t *testing.T) {
	m := serving(t)
	m.registered()
	m.driver.Link = t.TempDir()
	r := m.request("u1")
	yes := "ext4"
	r.Source.FSType = &yes
	if _, err := m.drivers.Publish(t.Context(), r); err == nil || !strings.Contains(err.Error(), "a link on the way") {
		t.Errorf("got %v", err)
	}
	if n := m.owned.Load(); n > 0 {
		t.Errorf("given to the group %d times", n)
	}
	test.Must(t, os.RemoveAll(filepath.Join(m.kubelet, "pods", "u1")))
	m.driver.Link = ""
	m.published(r)
	m.remove("u1")
	m.nothingLeft()
}
