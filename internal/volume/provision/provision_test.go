package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/pod/storageclass"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/test/testcsi"
	"podrun.io/podrun/internal/volume/csi"
)

const driverName = "csi.example.com"

var claim = pod.Key{Namespace: "ns", Name: "data"}

// machine is a machine with a driver and a podrun.
type machine struct {
	t      *testing.T
	dirs   layout.Dirs
	driver *testcsi.Driver
	*Provisioner
	objects pod.Objects
	end     func()
}

func newMachine(t *testing.T) *machine {
	if os.Geteuid() != 0 {
		t.Skip("drivers are root's")
	}
	dir, err := os.MkdirTemp("", "csi") // short enough for sockets
	test.Must(t, err)
	t.Cleanup(func() { test.Must(t, os.RemoveAll(dir)) })
	m := &machine{
		t: t, dirs: layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")},
		driver: &testcsi.Driver{Name: driverName, Node: "n", Dir: filepath.Join(dir, "k", "plugins", "d"), Registry: filepath.Join(dir, "k", "plugins_registry")},
	}
	for _, d := range []string{m.dirs.Root, m.dirs.Run, m.driver.Dir, m.driver.Registry} {
		test.Must(t, os.MkdirAll(d, 0o700))
	}
	class := "fast"
	c := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	c.Namespace, c.Name = claim.Namespace, claim.Name
	m.objects = pod.Objects{
		Claims: map[pod.Key]*v1.PersistentVolumeClaim{claim: c},
		Classes: map[string]*storageclass.Class{class: {
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: driverName,
			Parameters: map[string]string{"kind": "ssd", fsTypeParameter: "xfs"}, MountOptions: []string{"noatime"},
		}},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.driver.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	m.start()
	t.Cleanup(func() { m.end() })
	return m
}

// start starts a podrun, and waits until the driver has registered.
func (m *machine) start() {
	m.t.Helper()
	dir := filepath.Dir(m.driver.Registry)
	drivers := csi.New(csi.Options{Dirs: m.dirs, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	registry := pluginregistry.New(pluginregistry.Options{
		File: filepath.Join(filepath.Dir(m.driver.Registry), "refused.json"),
		Dir:  m.driver.Registry, Handlers: map[string]pluginregistry.Handler{registration.CSIPlugin: drivers}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = registry.Run(ctx); done <- struct{}{} }()
	go func() { _ = drivers.Run(ctx); done <- struct{}{} }()
	m.end = func() { cancel(); <-done; <-done }
	m.Provisioner = &Provisioner{Dirs: m.dirs, Drivers: drivers, Plugins: true}
	test.Eventually(m.t, "the driver to register", func() bool {
		all, err := csi.Read(m.dirs)
		return err == nil && len(all) == 1 && all[0].Connected
	})
}

// bound asks for the claim's volume for a pod.
func (m *machine) bound(name string) (*v1.PersistentVolume, error) {
	volume := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
	}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: name, UID: "u1"}, Spec: v1.PodSpec{Volumes: []v1.Volume{*volume}}}
	return m.Bound(m.t.Context(), pod.Inside{Pod: p, Objects: m.objects}, volume, true)
}

// fails fails unless that fails for the reason.
func (m *machine) fails(why string) {
	m.t.Helper()
	if v, err := m.bound("a"); err == nil || !strings.Contains(err.Error(), why) {
		m.t.Errorf("%v, %v, want %q", v, err, why)
	}
}

// made returns the handle of the claim's volume.
func (m *machine) made() string {
	m.t.Helper()
	v, err := m.bound("a")
	test.Must(m.t, err)
	if v == nil {
		m.t.Fatal("it is a directory")
	}
	return v.Spec.CSI.VolumeHandle
}

// fail makes a call fail; OK: not any more.
func (m *machine) fail(call string, code codes.Code) {
	m.t.Helper()
	at := m.driver.Path("fail-" + call)
	if code == codes.OK {
		test.Must(m.t, os.Remove(at))
		return
	}
	test.Must(m.t, os.WriteFile(at, []byte(strconv.Itoa(int(code))), 0o600))
}

// volumes returns how many volumes the driver has.
func (m *machine) volumes() int {
	m.t.Helper()
	all, err := filepath.Glob(m.driver.Path("volumes/*.size"))
	test.Must(m.t, err)
	return len(all)
}

func free() error { return nil }

func TestMade(t *testing.T) {
	m := newMachine(t)
	v, err := m.bound("a")
	test.Must(t, err)
	var r spec.CreateVolumeRequest
	text, err := os.ReadFile(m.driver.Path("last-CreateVolume"))
	test.Must(t, err)
	test.Must(t, protojson.Unmarshal(text, &r))
	mount := r.GetVolumeCapabilities()[0].GetMount()
	if !strings.HasPrefix(r.GetName(), "pvc-") || r.GetCapacityRange().GetRequiredBytes() != 1<<30 || fmt.Sprint(r.GetParameters()) != "map[kind:ssd]" ||
		mount.GetFsType() != "xfs" || fmt.Sprint(mount.GetMountFlags()) != "[noatime]" || len(r.GetVolumeCapabilities()) != 1 ||
		r.GetVolumeCapabilities()[0].GetAccessMode().GetMode() != spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
		t.Errorf("asked for %v", &r)
	}
	if s := v.Spec; v.Name != r.GetName() || s.CSI.VolumeHandle != r.GetName() || s.CSI.FSType != "xfs" || s.CSI.Driver != driverName ||
		fmt.Sprint(s.CSI.VolumeAttributes) != "map[kind:ssd]" || s.Capacity.Storage().Value() != 1<<30 || s.StorageClassName != "fast" {
		t.Errorf("made %+v", v)
	}
	// The record says what it is, and not the documents, also for another podrun.
	delete(m.objects.Classes, "fast")
	delete(m.objects.Claims, claim)
	m.end()
	m.start()
	if again := m.made(); again != v.Name || m.driver.Calls("CreateVolume") != 1 {
		t.Errorf("another one, %s", again)
	}
	if _, found, err := Read(m.dirs, pod.Key{Namespace: "ns", Name: "other"}); found || err != nil {
		t.Error(found, err)
	}
}

func TestDirectories(t *testing.T) {
	for name, change := range map[string]func(*machine){
		"no document":         func(m *machine) { delete(m.objects.Claims, claim) },
		"no class":            func(m *machine) { *m.objects.Claims[claim].Spec.StorageClassName = "" },
		"none is the default": func(m *machine) { m.objects.Claims[claim].Spec.StorageClassName = nil },
		"no driver":           func(m *machine) { m.objects.Classes["fast"].Provisioner = "rancher.io/local-path" },
		"no plugins, and no class": func(m *machine) {
			m.Plugins = false
			delete(m.objects.Classes, "fast")
		},
		"a directory": func(m *machine) { test.Must(m.t, os.MkdirAll(m.dirs.Claim("ns", "data"), 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			change(m)
			if v, err := m.bound("a"); v != nil || err != nil || m.volumes() != 0 {
				t.Errorf("%v, %v", v, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		change func(*machine)
		want   string
	}{
		"no document of the class": {func(m *machine) { delete(m.objects.Classes, "fast") }, `names the StorageClass "fast", which no manifest has`},
		"two are the default": {func(m *machine) {
			m.objects.Claims[claim].Spec.StorageClassName = nil
			other := *m.objects.Classes["fast"]
			m.objects.Classes["slow"] = &other
			other.Annotations = map[string]string{storageclass.AnnotationDefault: "true"}
			m.objects.Classes["fast"].Annotations = other.Annotations
		}, "fast, slow are all the default one"},
		"a device, and no driver": {func(m *machine) {
			m.objects.Claims[claim].Spec.VolumeMode = new(v1.PersistentVolumeBlock)
			m.objects.Classes["fast"].Provisioner = "kubernetes.io/no-provisioner"
		}, "has volumeMode Block, and no PersistentVolume"},
		"no Secret": {func(m *machine) {
			m.objects.Classes["fast"].Parameters = map[string]string{controllerSecret + "-name": "${pvc.name}", controllerSecret + "-namespace": "s"}
		}, `secret "data" not found`},
		"no name of a Secret": {func(m *machine) {
			m.objects.Classes["fast"].Parameters = map[string]string{stageSecret + "-name": "${pvc.labels}", stageSecret + "-namespace": "s"}
		}, `"${pvc.labels}" names no Secret`},
		"attached": {func(m *machine) {
			m.objects.CSIDrivers = map[string]*pod.CSIDriver{driverName: {Spec: pod.CSIDriverSpec{
				AttachRequired: &yes, VolumeLifecycleModes: []pod.VolumeLifecycleMode{pod.VolumePersistent},
			}}}
		}, "attachRequired"},
		"a controller that attaches": {func(m *machine) { m.driver.Attaches = true }, "PUBLISH_UNPUBLISH_VOLUME"},
		"no controller":              {func(m *machine) { m.fail("ControllerGetCapabilities", codes.Unimplemented) }, "CREATE_DELETE_VOLUME"},
		"not registered":             {func(m *machine) { m.objects.Classes["fast"].Provisioner = "other.example.com" }, "has not registered"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c.change(m)
			m.fails(c.want)
			if all, err := List(m.dirs); len(all) > 0 || err != nil || m.volumes() != 0 {
				t.Errorf("%v, %v, %d volumes", all, err, m.volumes())
			}
		})
	}
}

// TestSecrets: the driver's controller is given its Secret, and no record has it.
func TestSecrets(t *testing.T) {
	m := newMachine(t)
	m.objects.Classes["fast"].Parameters = map[string]string{controllerSecret + "-name": "${pvc.name}-login", controllerSecret + "-namespace": "${pvc.namespace}"}
	m.objects.Secrets = map[pod.Key]*v1.Secret{{Namespace: "ns", Name: "data-login"}: {Data: map[string][]byte{"user": []byte("anybody")}}}
	m.made()
	text, err := os.ReadFile(m.driver.Path("last-CreateVolume"))
	if !strings.Contains(string(text), "anybody") || err != nil {
		t.Errorf("asked for %s, %v", text, err)
	}
	if text, err = os.ReadFile(path(m.dirs, claim)); strings.Contains(string(text), "anybody") || err != nil {
		t.Errorf("recorded %s, %v", text, err)
	}
}

// TestOneVolume: whatever fails and is killed in between, and however many pods ask, a claim has one volume.
func TestOneVolume(t *testing.T) {
	for name, interrupt := range map[string]func(*machine){
		"killed before it was recorded": func(m *machine) { m.fail("ControllerGetCapabilities", codes.Unavailable) },
		"killed before the call": func(m *machine) {
			m.fail("CreateVolume", codes.Unavailable) // nothing has happened, and what is on disk is as after a kill
		},
		"killed after the call": func(m *machine) {
			before, err := os.ReadFile(path(m.dirs, claim))
			if before != nil || err == nil {
				m.t.Fatal("it is recorded already")
			}
			m.made()
			v, _, err := Read(m.dirs, claim)
			test.Must(m.t, err)
			v.Handle, v.Context, v.Socket, v.Size = "", nil, "", 0
			test.Must(m.t, save(m.dirs, v))
		},
		"a driver that hangs": func(m *machine) {
			test.Must(m.t, os.WriteFile(m.driver.Path("hang-CreateVolume"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			interrupt(m)
			_, first := m.bound("a")
			recorded, _, err := Read(m.dirs, claim)
			test.Must(t, err)
			for _, call := range []string{"fail-ControllerGetCapabilities", "fail-CreateVolume", "hang-CreateVolume"} {
				_ = os.Remove(m.driver.Path(call))
			}
			m.end()
			m.start()
			var all sync.WaitGroup
			for i := range 5 {
				all.Go(func() {
					test.Eventually(t, "the volume", func() bool { _, err := m.bound(fmt.Sprint("pod-", i)); return err == nil })
				})
			}
			all.Wait()
			if got := m.made(); m.volumes() != 1 || recorded.Name != "" && got != recorded.Name {
				t.Errorf("%d volumes, the last one %s; at first %v, %s", m.volumes(), got, first, recorded.Name)
			}
		})
	}
}

// TestSameName: whatever the driver answered, it may have made the volume: it is asked for the same one again, with what
// the documents say by then.
func TestSameName(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Internal, codes.InvalidArgument, codes.Unknown} {
		t.Run(code.String(), func(t *testing.T) {
			m := newMachine(t)
			m.fail("CreateVolume", code)
			m.fails(code.String())
			before, found, err := Read(m.dirs, claim)
			if !found || err != nil {
				t.Fatal("the volume that may have been made is forgotten", err)
			}
			m.objects.Classes["fast"].Provisioner = "other.example.com"
			m.fails("the driver " + driverName + " may have made a volume " + before.Name)
			m.objects.Classes["fast"].Provisioner = driverName
			m.objects.Classes["fast"].Parameters = map[string]string{"kind": "mended"}
			m.fail("CreateVolume", codes.OK)
			v, err := m.bound("a")
			test.Must(t, err)
			if v.Spec.CSI.VolumeHandle != before.Name || v.Spec.CSI.VolumeAttributes["kind"] != "mended" {
				t.Errorf("made %+v, and may have made %s", v.Spec.CSI, before.Name)
			}
		})
	}
}

// TestPartial: a manifest that cannot be read may have the claim's PersistentVolume. What was made is used all the same.
func TestPartial(t *testing.T) {
	m := newMachine(t)
	m.objects.Partial = true
	m.fails("not all manifests can be read")
	m.objects.Partial = false
	first := m.made()
	m.objects.Partial = true
	if m.made() != first || m.volumes() != 1 {
		t.Error("another one")
	}
}

// TestNotNow: who has its volume already makes none, and a document that names a volume wins over one that was not made.
func TestNotNow(t *testing.T) {
	m := newMachine(t)
	volume := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
	}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: "a", UID: "u1"}}
	if v, err := m.Bound(t.Context(), pod.Inside{Pod: p, Objects: m.objects}, volume, false); v != nil || err != nil || m.volumes() != 0 {
		t.Errorf("%v, %v", v, err)
	}
	m.fail("CreateVolume", codes.Internal)
	m.fails("Internal")
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "named"}, Spec: v1.PersistentVolumeSpec{
		ClaimRef: &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name},
	}}
	m.objects.Volumes = map[string]*v1.PersistentVolume{"named": pv}
	if v, err := m.bound("a"); v != pv || err != nil {
		t.Errorf("%v, %v", v, err)
	}
}

// TestDirectoryKept: a PersistentVolume that comes when a pod has written to the claim's directory is not taken in its
// place. One that came before, or whose claim has an empty directory, is.
func TestDirectoryKept(t *testing.T) {
	m := newMachine(t)
	dir := m.dirs.Claim(claim.Namespace, claim.Name)
	test.Must(t, os.MkdirAll(dir, 0o755))
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: v1.PersistentVolumeSpec{
		ClaimRef: &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name},
	}}
	m.objects.Volumes = map[string]*v1.PersistentVolume{"late": pv}
	test.Must(t, os.WriteFile(dir+"/data", nil, 0o600))
	m.fails("has data in " + dir)
	test.Must(t, os.Remove(dir+"/data"))
	if v, err := m.bound("a"); v != pv || err != nil {
		t.Errorf("an empty directory: %v, %v", v, err)
	}
	test.Must(t, os.WriteFile(dir+"/data", nil, 0o600))
	if v, err := m.bound("a"); v != pv || err != nil {
		t.Errorf("it had the volume before: %v, %v", v, err)
	}
}

// TestDamaged: a record that cannot be read is no reason to make another volume.
func TestDamaged(t *testing.T) {
	m := newMachine(t)
	m.made()
	for _, text := range []string{"", "{", `{"namespace":"ns","claim":"other","name":"n","driver":"d"}`, "{}"} {
		test.Must(t, os.WriteFile(path(m.dirs, claim), []byte(text), 0o600))
		m.fails("reading the record")
		if _, _, err := Remove(t.Context(), m.dirs, claim, free); err == nil {
			t.Errorf("%q was removed", text)
		}
	}
	if m.volumes() != 1 {
		t.Errorf("%d volumes", m.volumes())
	}
}

// TestDamagedElsewhere: a record that cannot be read stops nothing but its own claim.
func TestDamagedElsewhere(t *testing.T) {
	m := newMachine(t)
	test.Must(t, os.MkdirAll(layout.CSIClaims(m.dirs), 0o700))
	damaged := path(m.dirs, pod.Key{Namespace: "ns", Name: "other"})
	for _, at := range []string{damaged, filepath.Join(layout.CSIClaims(m.dirs), "junk.json"), filepath.Join(layout.CSIVolumes(m.dirs), "gone_v.json")} {
		test.Must(t, os.WriteFile(at, []byte("{"), 0o600))
	}
	m.made()
	if all, err := List(m.dirs); len(all) != 1 || err == nil || !strings.Contains(err.Error(), damaged) {
		t.Errorf("%+v, %v", all, err)
	}
	if found, _, err := Remove(t.Context(), m.dirs, claim, free); !found || err != nil {
		t.Errorf("removed: %t, %v", found, err)
	}
	_, _, err := Read(m.dirs, pod.Key{Namespace: "ns", Name: "other"})
	if err == nil || !strings.Contains(err.Error(), "bring the file back, or remove it: then the claim gets a new volume") {
		t.Errorf("got %v", err)
	}
}

func TestRemove(t *testing.T) {
	m := newMachine(t)
	if found, _, err := Remove(t.Context(), m.dirs, claim, free); found || err != nil {
		t.Error("removed what there is not", err)
	}
	first := m.made()
	used := errors.New("in use")
	if _, _, err := Remove(t.Context(), m.dirs, claim, func() error { return used }); !errors.Is(err, used) {
		t.Errorf("%v, want %v", err, used)
	}
	// A pod that comes after the check.
	checks := 0
	if _, _, err := Remove(t.Context(), m.dirs, claim, func() error {
		if checks++; checks == 2 {
			m.fails("is being deleted")
			return used
		}
		return nil
	}); !errors.Is(err, used) || m.made() != first {
		t.Errorf("%v, want %v", err, used)
	}
	// One that is not unpublished yet.
	v, _, err := Read(m.dirs, claim)
	test.Must(t, err)
	sum := sha256.Sum256([]byte(v.Name))
	at := filepath.Join(layout.CSIVolumes(m.dirs), "u9_"+hex.EncodeToString(sum[:])+".json")
	test.Must(t, os.WriteFile(at, []byte(`{"driver":"d","id":"h","uid":"u9","volume":"v","persistentVolume":"`+v.Name+`","released":true}`), 0o600))
	if _, _, err := Remove(t.Context(), m.dirs, claim, free); err == nil || !strings.Contains(err.Error(), "has not unpublished it yet") {
		t.Error(err)
	}
	test.Must(t, os.Remove(at))
	// The driver refuses: the volume stays the claim's.
	m.fail("DeleteVolume", codes.FailedPrecondition)
	if _, _, err := Remove(t.Context(), m.dirs, claim, free); err == nil || m.made() != first {
		t.Error(err)
	}
	// Another driver at the socket.
	m.driver.Name = "other.example.com"
	if _, _, err := Remove(t.Context(), m.dirs, claim, free); err == nil || !strings.Contains(err.Error(), `is the driver "other.example.com"`) {
		t.Error(err)
	}
	m.driver.Name = driverName
	test.Must(t, os.Remove(m.driver.Path("fail-DeleteVolume")))
	// The driver does not answer: nobody gets the volume, and it is deleted the next time.
	m.fail("DeleteVolume", codes.Unavailable)
	if _, _, err := Remove(t.Context(), m.dirs, claim, free); err == nil || !strings.Contains(err.Error(), "run podrun volumes rm data -n ns again when the driver is back") {
		t.Error(err)
	}
	m.fails("is being deleted")
	m.fail("DeleteVolume", codes.OK)
	if found, kept, err := Remove(t.Context(), m.dirs, claim, free); !found || kept != "" || err != nil || m.volumes() != 0 {
		t.Errorf("%v, %q, %v, %d volumes", found, kept, err, m.volumes())
	}
	if second := m.made(); second == first || m.volumes() != 1 {
		t.Errorf("made %s again", second)
	}
	// The driver has none of that name.
	m.fail("DeleteVolume", codes.NotFound)
	if _, _, err := Remove(t.Context(), m.dirs, claim, free); err != nil {
		t.Error(err)
	}
}

// TestUnfinishedRemoval: a pod comes back while its volume is being deleted and the driver is down. It waits for the
// removal, and the removal does not wait for it.
func TestUnfinishedRemoval(t *testing.T) {
	m := newMachine(t)
	first := m.made()
	m.fail("DeleteVolume", codes.Unavailable)
	if _, _, err := Remove(t.Context(), m.dirs, claim, free); err == nil {
		t.Fatal("the driver answers")
	}
	m.fails("run podrun volumes rm data -n ns again when the driver " + driverName + " is back")
	waits := func() error { return errors.New("in use by a pod that waits") }
	if _, _, err := Remove(t.Context(), m.dirs, claim, waits); err == nil || !strings.Contains(err.Error(), "again when the driver is back") {
		t.Errorf("the driver is down: %v", err)
	}
	m.fail("DeleteVolume", codes.OK)
	if found, _, err := Remove(t.Context(), m.dirs, claim, waits); !found || err != nil || m.volumes() != 0 {
		t.Errorf("%v, %v, %d volumes", found, err, m.volumes())
	}
	if second := m.made(); second == first {
		t.Error("made again")
	}
}

// TestKilledRemoval: the command was killed before it was sure that no pod has the claim. A pod may have the volume, and
// keeps it: the driver was not called.
func TestKilledRemoval(t *testing.T) {
	m := newMachine(t)
	first := m.made()
	v, _, err := Read(m.dirs, claim)
	test.Must(t, err)
	v.Deleting = true
	test.Must(t, save(m.dirs, v))
	m.fails("is being deleted")
	used := errors.New("in use")
	if _, _, err := Remove(t.Context(), m.dirs, claim, func() error { return used }); !errors.Is(err, used) || m.made() != first {
		t.Error(err)
	}
	v.Deleting = true
	test.Must(t, save(m.dirs, v))
	if _, _, err := Remove(t.Context(), m.dirs, claim, free); err != nil || m.volumes() != 0 {
		t.Errorf("%v, %d volumes", err, m.volumes())
	}
}

// TestKept: with reclaimPolicy Retain the driver keeps the volume, and the claim gets another one.
func TestKept(t *testing.T) {
	m := newMachine(t)
	m.objects.Classes["fast"].ReclaimPolicy = new(v1.PersistentVolumeReclaimRetain)
	first := m.made()
	if _, kept, err := Remove(t.Context(), m.dirs, claim, free); !strings.Contains(kept, "keeps "+first) || err != nil || m.volumes() != 1 {
		t.Errorf("%q, %v, %d volumes", kept, err, m.volumes())
	}
	if m.made() == first {
		t.Error("it is the claim's again")
	}
	// One that may have been made.
	m = newMachine(t)
	m.fail("CreateVolume", codes.Unavailable)
	m.fails("CreateVolume")
	v, _, err := Read(m.dirs, claim)
	test.Must(t, err)
	if _, kept, err := Remove(t.Context(), m.dirs, claim, free); !strings.Contains(kept, "its driver "+driverName+" may have made a volume "+v.Name) || err != nil {
		t.Errorf("%q, %v", kept, err)
	}
}

// TestBeginWhereItHangs: a claim whose place is on a file system that does not answer keeps no other claim from being
// recorded.
func TestBeginWhereItHangs(t *testing.T) {
	dir := t.TempDir()
	dirs := layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run")}
	end := test.HangingMount(t, dirs.Claim("ns", "hangs"))
	of := func(name string) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := begin(dirs, Volume{Namespace: "ns", Claim: name, Name: "pvc-" + name, Driver: "d"})
			done <- err
		}()
		return done
	}
	hangs := of("hangs")
	select {
	case err := <-hangs:
		t.Fatalf("it answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	select {
	case err := <-of("other"):
		test.Must(t, err)
	case <-time.After(20 * time.Second):
		t.Error("another claim waits for it")
	}
	end()
	if err := <-hangs; err == nil {
		t.Error("it was recorded")
	}
}
