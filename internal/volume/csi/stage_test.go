package csi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/volume/csi"
)

const handle = "vol/1"

// staging returns a machine with a driver that stages, and one volume.
func staging(t *testing.T) *machine {
	m := newMachine(t)
	m.driver.Stages = true
	t.Cleanup(func() {
		staged, _ := filepath.Glob(filepath.Join(m.kubelet, "plugins/kubernetes.io/csi/*/*/globalmount"))
		for _, at := range staged {
			_ = sys.Unmount(at)
		}
	})
	_, err := m.driver.CreateVolume(t.Context(), &spec.CreateVolumeRequest{
		Name: handle, VolumeCapabilities: []*spec.VolumeCapability{{}},
	})
	test.Must(t, err)
	m.start()
	m.serve()
	m.registered()
	return m
}

// registered waits until the driver has registered.
func (m *machine) registered() {
	m.t.Helper()
	test.Eventually(m.t, "the driver to register", func() bool {
		all, err := csi.Read(m.dirs)
		return err == nil && len(all) == 1 && all[0].Connected
	})
}

// persistent asks for the PersistentVolume of a pod.
func (m *machine) persistent(uid string, modes ...v1.PersistentVolumeAccessMode) csi.Request {
	m.t.Helper()
	if len(modes) == 0 {
		modes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	}
	r := m.request(uid)
	r.Persistent = &csi.Persistent{Name: "pv", Claim: "claim", Handle: handle, Modes: modes, Block: m.block}
	return r
}

// calls fails unless calls that stage, publish, unpublish and unstage have come so often.
func (m *machine) calls(stage, publish, unpublish, unstage int) {
	m.t.Helper()
	got := [4]int{m.driver.Calls("NodeStageVolume"), m.driver.Calls("NodePublishVolume"),
		m.driver.Calls("NodeUnpublishVolume"), m.driver.Calls("NodeUnstageVolume")}
	if want := [4]int{stage, publish, unpublish, unstage}; got != want {
		m.t.Errorf("calls that stage, publish, unpublish and unstage: %v, want %v", got, want)
	}
}

// last reads the request of the last call.
func (m *machine) last(call string, into proto.Message) {
	m.t.Helper()
	text, err := os.ReadFile(m.driver.Path("last-" + call))
	test.Must(m.t, err)
	test.Must(m.t, protojson.Unmarshal(text, into))
}

// unstaged fails if anything is left of pods and of what was staged.
func (m *machine) unstaged() {
	m.t.Helper()
	left, err := filepath.Glob(filepath.Join(m.kubelet, "pods", "*"))
	test.Must(m.t, err)
	staged, err := filepath.Glob(filepath.Join(m.kubelet, "plugins/kubernetes.io/csi/*"))
	test.Must(m.t, err)
	staged = slices.DeleteFunc(staged, func(at string) bool { return filepath.Base(at) == "volumeDevices" })
	devices, err := filepath.Glob(filepath.Join(m.kubelet, "plugins/kubernetes.io/csi/volumeDevices/*/*"))
	test.Must(m.t, err)
	staged = append(staged, devices...)
	if all := append(left, staged...); len(all) > 0 {
		m.t.Errorf("left: %q", all)
	}
	m.has("")
}

// TestStage: two pods have one volume, which is staged once, and unstaged after the last one.
func TestStage(t *testing.T) {
	m := staging(t)
	a, b := m.published(m.persistent("u1")), m.published(m.persistent("u2"))
	m.calls(1, 2, 0, 0)
	sum := sha256.Sum256([]byte(handle))
	at := filepath.Join(m.kubelet, "plugins/kubernetes.io/csi", driverName, hex.EncodeToString(sum[:]), "globalmount")
	var stage spec.NodeStageVolumeRequest
	m.last("NodeStageVolume", &stage)
	if stage.GetStagingTargetPath() != at || stage.GetVolumeId() != handle {
		t.Errorf("staged %v, want at %s", &stage, at)
	}
	if info, err := os.Stat(filepath.Dir(at)); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info, err)
	}
	if want := filepath.Join(m.kubelet, "pods/u2/volumes/kubernetes.io~csi/pv/mount"); b.Path != want {
		t.Errorf("at %s, want %s", b.Path, want)
	}
	test.Must(t, os.WriteFile(filepath.Join(a.Path, "file"), []byte("text"), 0o600))
	if text, err := os.ReadFile(filepath.Join(b.Path, "file")); string(text) != "text" {
		t.Errorf("the other pod reads %q, %v", text, err)
	}
	if fs, _, err := m.drivers.Usage(t.Context(), "u1", "data"); err != nil || fs.Capacity != 1<<30 {
		t.Errorf("usage %+v, %v", fs, err)
	}
	m.remove("u1")
	m.calls(1, 2, 1, 0)
	// Another podrun, and a driver that was restarted: what is mounted is not mounted again.
	m.stop()
	m.kill()
	m.start()
	m.serve()
	<-m.changes // it has registered: a driver that is away is asked later
	m.published(m.persistent("u2"))
	m.calls(1, 2, 1, 0)
	m.remove("u2")
	m.calls(1, 2, 2, 1)
	m.unstaged()
}

// TestWithoutStage: a driver that does not stage is not asked to.
func TestWithoutStage(t *testing.T) {
	m := staging(t)
	m.kill()
	m.driver.Stages = false
	m.stop()
	m.start()
	m.serve()
	m.published(m.persistent("u1"))
	var r spec.NodePublishVolumeRequest
	m.last("NodePublishVolume", &r)
	if r.GetStagingTargetPath() != "" {
		t.Errorf("published %v", &r)
	}
	m.remove("u1")
	m.calls(0, 1, 1, 0)
	m.unstaged()
}

// TestKilledInBetween: podrun is killed before or after each of the calls, with a pod that stays or goes, and a file
// system or a block device.
func TestKilledInBetween(t *testing.T) {
	for _, call := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		for variant := range 8 {
			before, stays, block := variant&1 != 0, variant&2 != 0, variant&4 != 0
			t.Run(fmt.Sprintf("%s before=%v stays=%v block=%v", call, before, stays, block), func(t *testing.T) {
				killedInBetween(t, call, before, stays, block)
			})
		}
	}
}

func killedInBetween(t *testing.T, call string, before, stays, block bool) {
	m := staging(t)
	m.block = block
	ends := strings.HasPrefix(call, "NodeUn")
	if ends {
		m.published(m.persistent("u1"))
	}
	if before {
		m.fail(call, codes.Unavailable) // nothing has happened, and what is on disk is as after a kill
	}
	files := m.cut(call, ends)
	m.stop()
	if before {
		m.fail(call, codes.OK)
	} else {
		m.restore(files)
	}
	m.start()
	if stays {
		m.published(m.persistent("u1"))
		if _, err := os.Stat(m.driver.Path("volumes")); err != nil {
			t.Error(err)
		}
		m.has("u1 published=true released=false")
	}
	m.remove("u1")
	m.await("")
	m.unstaged()
}

// cut begins or ends the volume of a pod, and returns the records as they were before the call.
func (m *machine) cut(call string, ends bool) map[string][]byte {
	m.t.Helper()
	dir := layout.CSIVolumes(m.dirs)
	var files map[string][]byte
	snapshot := func() {
		files = map[string][]byte{}
		entries, err := os.ReadDir(dir)
		test.Must(m.t, err)
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			test.Must(m.t, err)
			files[e.Name()] = text
		}
	}
	_, failing := os.Stat(m.driver.Path("fail-" + call))
	if failing != nil { // what is on disk when it is called is what is there while it hangs
		at := m.driver.Path("hang-" + call)
		test.Must(m.t, os.WriteFile(at, nil, 0o600))
		go func() {
			if ends {
				_ = m.drivers.Release(m.t.Context(), "u1")
			} else {
				_, _ = m.drivers.Publish(m.t.Context(), m.persistent("u1"))
			}
		}()
		test.Eventually(m.t, "the call", func() bool {
			all, err := csi.Records(m.dirs)
			return err == nil && len(all) == 1 && all[0].Released == ends && m.reached(call)
		})
		snapshot()
		test.Must(m.t, os.Remove(at))
		if ends {
			m.await("")
		} else {
			m.published(m.persistent("u1"))
		}
		return files
	}
	if ends {
		test.Must(m.t, m.drivers.Release(m.t.Context(), "u1"))
		return nil
	}
	if _, err := m.drivers.Publish(m.t.Context(), m.persistent("u1")); err == nil {
		m.t.Error("it succeeded")
	}
	return nil
}

// reached reports whether the calls before a call have come.
func (m *machine) reached(call string) bool {
	switch call {
	case "NodePublishVolume":
		return m.driver.Calls("NodeStageVolume") > 0
	case "NodeUnstageVolume":
		return m.driver.Calls("NodeUnpublishVolume") > 0
	}
	return true
}

// restore brings back records.
func (m *machine) restore(files map[string][]byte) {
	m.t.Helper()
	for name, text := range files {
		test.Must(m.t, os.WriteFile(filepath.Join(layout.CSIVolumes(m.dirs), name), text, 0o600))
	}
}

// TestStagedReboot: mounts are gone, and what the driver keeps is not.
func TestStagedReboot(t *testing.T) {
	m := staging(t)
	p := m.published(m.persistent("u1"))
	var stage spec.NodeStageVolumeRequest
	m.last("NodeStageVolume", &stage)
	m.stop()
	m.kill()
	test.Must(t, sys.Unmount(p.Path))
	test.Must(t, sys.Unmount(stage.GetStagingTargetPath()))
	m.start()
	m.serve()
	m.published(m.persistent("u1"))
	m.calls(2, 2, 0, 0)
	m.remove("u1")
	m.unstaged()
}

// TestStagedDriverGone: a driver that is gone keeps no pod from being removed; another pod keeps the volume staged.
func TestStagedDriverGone(t *testing.T) {
	m := staging(t)
	m.published(m.persistent("u1"))
	m.published(m.persistent("u2"))
	m.kill()
	m.remove("u1")
	m.remove("u2")
	m.has("u1 published=true released=true, u2 published=true released=true")
	u3 := m.persistent("u3")
	if _, err := m.drivers.Publish(t.Context(), u3); err == nil {
		t.Error("published without a driver")
	}
	m.serve()
	m.published(u3)
	m.await("u3 published=true released=false")
	if _, err := os.Stat(m.driver.Path("csi.sock")); err != nil {
		t.Error(err)
	}
	m.remove("u3")
	m.unstaged()
	if n := m.driver.Calls("NodeUnstageVolume"); n != 1 && n != 2 {
		t.Errorf("unstaged %d times", n)
	}
}

// TestStageFails: after an error that is final nothing is left; after one that is not the volume is unstaged with its
// pod.
func TestStageFails(t *testing.T) {
	m := staging(t)
	r := m.persistent("u1")
	m.fail("NodeStageVolume", codes.InvalidArgument)
	test.Eventually(t, "the driver", func() bool {
		_, err := m.drivers.Publish(t.Context(), r)
		return err != nil && strings.Contains(err.Error(), "CSI driver "+driverName+": NodeStageVolume: ")
	})
	m.unstaged()
	m.fail("NodeStageVolume", codes.DeadlineExceeded)
	if _, err := m.drivers.Publish(t.Context(), r); err == nil {
		t.Error("it succeeded")
	}
	m.has("u1 published=false released=false")
	m.remove("u1")
	m.unstaged()
	m.fail("NodeStageVolume", codes.OK)
	m.fail("NodePublishVolume", codes.InvalidArgument)
	if _, err := m.drivers.Publish(t.Context(), m.persistent("u1")); err == nil {
		t.Error("it succeeded")
	}
	m.remove("u1")
	m.unstaged()
}

// TestFailsAfterwards: a volume that a driver has mounted before it fails, with an error that is final, is unpublished
// and unstaged with its pod.
func TestFailsAfterwards(t *testing.T) {
	for _, call := range []string{"NodeStageVolume", "NodePublishVolume"} {
		m := staging(t)
		publish := func() error {
			r := m.persistent("u1")
			if call == "NodePublishVolume" {
				r = m.request("u1")
			}
			_, err := m.drivers.Publish(t.Context(), r)
			return err
		}
		late := m.driver.Path("late-" + call)
		test.Must(t, os.WriteFile(late, []byte(strconv.Itoa(int(codes.Internal))), 0o600))
		test.Eventually(t, "the driver", func() bool {
			err := publish()
			return err != nil && strings.Contains(err.Error(), "as the test wants")
		})
		m.has("u1 published=false released=false")
		m.remove("u1")
		m.unstaged()
	}
}

// TestOnePod: a ReadWriteOncePod volume is one pod's, and the next one's when that is gone.
func TestOnePod(t *testing.T) {
	m := staging(t)
	m.published(m.persistent("u1", v1.ReadWriteOncePod))
	select {
	case <-m.changes:
	default:
	}
	u2 := m.persistent("u2", v1.ReadWriteOncePod)
	_, err := m.drivers.Publish(t.Context(), u2)
	if err == nil || !strings.Contains(err.Error(), "it is ReadWriteOncePod, and the pod ns/pod-u1 has it") {
		t.Errorf("got %v", err)
	}
	m.remove("u1")
	select {
	case <-m.changes:
	default:
		t.Error("who waits is not told")
	}
	_, err = m.drivers.Publish(t.Context(), u2)
	test.Must(t, err)
	m.remove("u2")
	m.unstaged()
}

// TestOnePodIsEdited: the next revision of the pod that has a ReadWriteOncePod volume gets it before a pod that has
// waited longer, unless it is gone before it had it.
func TestOnePodIsEdited(t *testing.T) {
	m := staging(t)
	m.published(m.persistent("u1", v1.ReadWriteOncePod))
	rival, next, last := m.persistent("rival", v1.ReadWriteOncePod), m.persistent("u2", v1.ReadWriteOncePod), m.persistent("u3", v1.ReadWriteOncePod)
	next.Pod.Name, last.Pod.Name = "pod-u1", "pod-u1"
	refused := func(r csi.Request, why string) {
		t.Helper()
		if _, err := m.drivers.Publish(t.Context(), r); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want %q", err, why)
		}
	}
	refused(rival, "the pod ns/pod-u1 has it")
	refused(next, "not unpublished yet for the pod's former revision")
	m.remove("u1")
	refused(rival, "kept for the next revision of the pod ns/pod-u1")
	m.published(next)
	refused(rival, "the pod ns/pod-u1 has it")
	refused(last, "not unpublished yet for the pod's former revision")
	m.remove("u2")
	refused(rival, "kept for the next revision of the pod ns/pod-u1")
	for len(m.changes) > 0 {
		<-m.changes
	}
	m.remove("u3")
	if len(m.changes) == 0 {
		t.Error("who waits is not woken")
	}
	m.published(rival)
	m.remove("rival")
	m.unstaged()
}

// TestToldOfPersistentVolumes: what a driver is told of the documents.
func TestToldOfPersistentVolumes(t *testing.T) {
	m := staging(t)
	r := m.persistent("u1", v1.ReadOnlyMany, v1.ReadWriteOnce)
	yes, ext4 := true, "ext4"
	r.Source.ReadOnly, r.Source.FSType = &yes, &ext4
	r.Secrets, r.Persistent.StageSecrets = map[string]string{"p": "1"}, map[string]string{"s": "2"}
	r.Persistent.MountOptions = []string{"noatime", "a=b"}
	m.published(r)
	capability := &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: "ext4", MountFlags: []string{"noatime", "a=b"}}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
	}
	var stage, wantStage spec.NodeStageVolumeRequest
	m.last("NodeStageVolume", &stage)
	at := stage.GetStagingTargetPath()
	wantStage = spec.NodeStageVolumeRequest{
		VolumeId: handle, StagingTargetPath: at, VolumeCapability: capability, Secrets: map[string]string{"s": "2"},
		VolumeContext: map[string]string{"a": "b"},
	}
	if !proto.Equal(&stage, &wantStage) {
		t.Errorf("%v, want %v", &stage, &wantStage)
	}
	publish := &spec.NodePublishVolumeRequest{}
	m.last("NodePublishVolume", publish)
	want := &spec.NodePublishVolumeRequest{
		VolumeId: handle, StagingTargetPath: at, TargetPath: publish.GetTargetPath(), VolumeCapability: capability, Readonly: true,
		Secrets: map[string]string{"p": "1"}, VolumeContext: map[string]string{"a": "b"},
	}
	if !proto.Equal(publish, want) {
		t.Errorf("%v, want %v", publish, want)
	}
	m.remove("u1")
	r = m.persistent("u1")
	attach, info := false, true
	r.Driver = document(func(s *pod.CSIDriverSpec) {
		s.VolumeLifecycleModes, s.AttachRequired, s.PodInfoOnMount = []pod.VolumeLifecycleMode{pod.VolumePersistent}, &attach, &info
	})
	m.published(r)
	m.last("NodePublishVolume", publish)
	if c := publish.GetVolumeContext(); c["csi.storage.k8s.io/ephemeral"] != "false" || c["csi.storage.k8s.io/pod.uid"] != "u1" {
		t.Errorf("%v", c)
	}
	m.remove("u1")
	m.unstaged()
}

// TestOwnablePersistentVolumes: who gives a PersistentVolume to the pod's group without a policy.
func TestOwnablePersistentVolumes(t *testing.T) {
	m := staging(t)
	ext4 := "ext4"
	for mode, want := range map[v1.PersistentVolumeAccessMode]int64{
		v1.ReadWriteOnce: 1, v1.ReadWriteOncePod: 1, v1.ReadWriteMany: 0, v1.ReadOnlyMany: 0,
	} {
		m.owned.Store(0)
		r := m.persistent("u1", mode)
		r.Source.FSType = &ext4
		m.published(r)
		if got := m.owned.Load(); got != want {
			t.Errorf("%s: given to the group %d times", mode, got)
		}
		m.remove("u1")
	}
	m.unstaged()
}

// TestAttached: a driver that attaches is refused, by its document or by what it says itself.
func TestAttached(t *testing.T) {
	m := staging(t)
	no := false
	persistent := []pod.VolumeLifecycleMode{pod.VolumePersistent}
	for want, d := range map[string]*pod.CSIDriver{
		"has attachRequired, which is true if it is left out": document(func(s *pod.CSIDriverSpec) { s.VolumeLifecycleModes = persistent }),
		"no volumeLifecycleMode Persistent":                   document(func(s *pod.CSIDriverSpec) { s.AttachRequired = &no }),
	} {
		r := m.persistent("u1")
		r.Driver = d
		if _, err := m.drivers.Publish(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	m.published(m.persistent("u1"))
	m.remove("u1")
	m.driver.Attaches = true
	if _, err := m.drivers.Publish(t.Context(), m.persistent("u1")); err == nil || !strings.Contains(err.Error(), "PUBLISH_UNPUBLISH_VOLUME") {
		t.Errorf("got %v", err)
	}
	m.unstaged()
	r := m.persistent("u1")
	r.Driver = document(func(s *pod.CSIDriverSpec) { s.VolumeLifecycleModes, s.AttachRequired = persistent, &no })
	m.published(r)
	m.remove("u1")
	m.unstaged()
}

// TestAnotherHandle: the document names another volume after a reboot: the first one is unpublished before.
func TestAnotherHandle(t *testing.T) {
	m := staging(t)
	p := m.published(m.persistent("u1"))
	r := m.persistent("u1")
	r.Persistent.Handle = "other"
	m.published(r) // it is mounted: nothing changes
	m.calls(1, 1, 0, 0)
	test.Must(t, sys.Unmount(p.Path))
	_, err := m.drivers.Publish(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "no such volume") {
		t.Errorf("got %v", err)
	}
	m.calls(2, 1, 1, 1)
	m.unstaged()
}

// TestRetained: what a pod has been given is known without documents.
func TestRetained(t *testing.T) {
	m := staging(t)
	if _, name, err := m.drivers.Retained("u1", "claim"); name != "" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	p := m.published(m.persistent("u1"))
	if got, name, err := m.drivers.Retained("u1", "claim"); got != p || name != "pv" || err != nil {
		t.Errorf("%v, %q, %v", got, name, err)
	}
	test.Must(t, sys.Unmount(p.Path))
	if _, name, err := m.drivers.Retained("u1", "claim"); name != "pv" || err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("%q, %v", name, err)
	}
	m.remove("u1")
	m.unstaged()
}

// TestStageAtOnce: pods come and go at once, and none of them loses the volume.
func TestStageAtOnce(t *testing.T) {
	m := staging(t)
	const pods, times = 3, 30
	var running sync.WaitGroup
	for i := range pods {
		running.Go(func() {
			uid := "u" + strconv.Itoa(i)
			for range times {
				p := m.published(m.persistent(uid))
				var stage spec.NodePublishVolumeRequest
				m.last("NodePublishVolume", &stage)
				if err := os.WriteFile(filepath.Join(p.Path, uid), nil, 0o600); err != nil {
					t.Error(err)
				}
				if mounted, err := mountinfo.Mounted(stage.GetStagingTargetPath()); err != nil || !mounted {
					t.Errorf("it is not staged while a pod has it: %v", err)
				}
				m.remove(uid)
			}
		})
	}
	running.Wait()
	m.await("")
	m.unstaged()
	if stage, unstage := m.driver.Calls("NodeStageVolume"), m.driver.Calls("NodeUnstageVolume"); stage == 0 || stage != unstage {
		t.Errorf("staged %d times, and unstaged %d times", stage, unstage)
	}
	t.Logf("staged %d times", m.driver.Calls("NodeStageVolume"))
}

// TestMountedElsewhere: what a driver has not mounted where the machine sees it is no volume: what a pod wrote there would be
// lost.
func TestMountedElsewhere(t *testing.T) {
	m := staging(t)
	m.driver.Hidden = true
	_, err := m.drivers.Publish(t.Context(), m.persistent("u1"))
	if err == nil || !strings.Contains(err.Error(), "nothing is mounted at") || !strings.Contains(err.Error(), "mountPropagation: Bidirectional") {
		t.Errorf("got %v", err)
	}
	m.driver.Hidden = false
	m.published(m.persistent("u1"))
	m.remove("u1")
	m.unstaged()
}

// TestOnePodUnderAnotherName: the document of a ReadWriteOncePod volume gets another name while a pod has it.
func TestOnePodUnderAnotherName(t *testing.T) {
	m := staging(t)
	p := m.published(m.persistent("u1", v1.ReadWriteOncePod))
	test.Must(t, sys.Unmount(p.Path)) // as after a reboot
	r := m.persistent("u1", v1.ReadWriteOncePod)
	r.Persistent.Name = "renamed"
	m.published(r)
	m.remove("u1")
	m.unstaged()
}

// TestAnotherVersionAtTheSocket: a driver that comes back at its socket, without a registration, can something else now.
func TestAnotherVersionAtTheSocket(t *testing.T) {
	m := newMachine(t)
	m.driver.Registry = t.TempDir() // nobody looks there
	_, err := m.driver.CreateVolume(t.Context(), &spec.CreateVolumeRequest{
		Name: handle, VolumeCapabilities: []*spec.VolumeCapability{{}},
	})
	test.Must(t, err)
	m.start()
	m.serve()
	test.Must(t, m.drivers.Register(t.Context(), driverName, m.driver.Path("csi.sock"), []string{"1.0.0"}))
	m.published(m.persistent("u1"))
	m.calls(0, 1, 0, 0)
	m.kill()
	test.Eventually(t, "its end to be noticed", func() bool {
		all, err := csi.Read(m.dirs)
		return err == nil && len(all) == 1 && !all[0].Connected
	})
	if _, err := m.drivers.Publish(t.Context(), m.persistent("u2")); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("without it: %v", err)
	}
	m.driver.Stages, m.driver.Node = true, "another-name"
	m.serve()
	m.registered()
	m.published(m.persistent("u2"))
	m.calls(1, 2, 0, 0)
	if all, err := csi.Read(m.dirs); err != nil || all[0].NodeID != "another-name" {
		t.Errorf("%+v, %v", all, err)
	}
	m.remove("u1")
	m.remove("u2")
	m.unstaged()
}
