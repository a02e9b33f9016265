package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/volume"
	"podrun.io/podrun/internal/volume/csi"
	"podrun.io/podrun/internal/volume/csi/wire"
)

// The machine has a CSI driver. Package volume/csi is the real one, with its records in files; here are the driver, its
// registration, the connections to it, and what the kernel has mounted.

const (
	simulatedDriver = "csi.example.com"
	// manyPods and onePod are the PersistentVolumes, and their claims: of any pods at once, and of one at a time.
	manyPods = "many"
	onePod   = "one"
	// longestAbsence is how long the driver may be away.
	longestAbsence = 10 * time.Minute
)

// csiDriver is the CSI driver, as it really is, and what is mounted by it. The world's mutex guards it.
type csiDriver struct {
	dir string // where drivers look for the kubelet
	up  bool
	// begun counts how often it began: a call ends with the process that it was sent to.
	begun int
	// registrar counts the sockets at which it registered; 0: there is none now. changed is closed when that changes.
	registrar, registrars int
	changed               chan struct{}
	// stages says that it stages volumes.
	stages bool
	// mounted are the IDs of the volumes that are mounted, by path.
	mounted map[string]string
	conns   []*driverConn
}

func newCSIDriver(seed uint64, dirs layout.Dirs) csiDriver {
	return csiDriver{
		dir: filepath.Join(filepath.Dir(dirs.Root), "kubelet"), up: true, registrar: 1, registrars: 1,
		changed: make(chan struct{}), stages: !chance(scatter(seed, "stages", 0), 4), mounted: map[string]string{},
	}
}

// documents are the manifests of the volumes. Drivers are asked for what they do without a CSIDriver document.
func (w *world) documents() []byte {
	text := ""
	if d := scatter(w.seed, "CSIDriver", 0); chance(d, 2) {
		text += fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %s}
spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral, Persistent], requiresRepublish: %v}
---
`, simulatedDriver, chance(d>>8, 2))
	}
	for _, name := range []string{manyPods, onePod} {
		mode := v1.ReadWriteMany
		if name == onePod {
			mode = v1.ReadWriteOncePod
		}
		text += fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [%[2]s]
  csi: {driver: %[3]s, volumeHandle: %[1]s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec: {accessModes: [%[2]s], volumeName: %[1]s, storageClassName: "", resources: {requests: {storage: 1Gi}}}
---
`, name, mode, simulatedDriver)
	}
	return []byte(text)
}

// volumesOf gives a pod volumes of the driver.
func volumesOf(r *rand.Rand, p *v1.Pod) {
	add := func(name string, from v1.VolumeSource) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: from})
		all := pod.AllContainers(p)
		c := all[r.IntN(len(all))]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	if r.IntN(3) == 0 {
		add("inline", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: simulatedDriver}})
	}
	for _, claim := range []string{manyPods, onePod} {
		if r.IntN(3) == 0 {
			source := &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
			add(claim, v1.VolumeSource{PersistentVolumeClaim: source})
		}
	}
}

// usesDriver reports whether a pod has a volume of the driver.
func usesDriver(p *v1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.ConfigMap == nil })
}

// target returns where a volume of a pod is mounted; "" if it is not the driver's.
func (d *csiDriver) target(p *v1.Pod, v *v1.Volume) string {
	if v.ConfigMap != nil {
		return ""
	}
	return filepath.Join(d.dir, "pods", string(p.UID), "volumes", "kubernetes.io~csi", v.Name, "mount")
}

// publications returns the pods for which a volume is mounted.
func (d *csiDriver) publications(id string) (uids []pod.UID) {
	for path, mounted := range d.mounted {
		if uid, is := d.podOf(path); is && mounted == id {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// podOf returns the pod for which something is mounted at a path; a volume that is staged is mounted for none.
func (d *csiDriver) podOf(path string) (pod.UID, bool) {
	in, is := strings.CutPrefix(path, filepath.Join(d.dir, "pods")+"/")
	uid, _, _ := strings.Cut(in, "/")
	return pod.UID(uid), is
}

// missingVolume says which of a pod's volumes is not mounted. The caller holds mu.
func (w *world) missingVolume(p *v1.Pod) string {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		at := w.csi.target(p, v)
		id := w.csi.mounted[at]
		if at != "" && (id == "" || v.PersistentVolumeClaim != nil && id != v.Name) {
			return fmt.Sprintf("its volume %s is not mounted, but %q", v.Name, id)
		}
	}
	return ""
}

// driverConn is a connection of one podrun to the driver. It implements csi.Conn. The world's mutex guards it.
type driverConn struct {
	p       *process
	state   connectivity.State
	changed chan struct{} // closed when the state changes
}

// dialDriver implements csi.Machine.
func (p *process) dialDriver(string) (csi.Conn, error) {
	c := &driverConn{p: p, state: connectivity.Idle, changed: make(chan struct{})}
	p.w.set(func() { p.w.csi.conns = append(p.w.csi.conns, c) })
	c.Connect()
	return c, nil
}

// kindOn implements csi.Machine.
func (w *world) kindOn(dir string) (kind string, err error) {
	w.set(func() {
		if w.csi.mounted[dir] != "" {
			kind = "simulated"
		}
	})
	return kind, nil
}

// to changes the state. The caller holds mu.
func (c *driverConn) to(state connectivity.State) {
	if c.state != state {
		c.state = state
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// reach connects to the driver, if it is there. The caller holds mu.
func (c *driverConn) reach() {
	if c.p.w.csi.up {
		c.to(connectivity.Ready)
	} else {
		c.to(connectivity.TransientFailure)
	}
}

// Connect implements csi.Conn.
func (c *driverConn) Connect() { c.p.w.set(c.reach) }

// ResetConnectBackoff implements csi.Conn.
func (c *driverConn) ResetConnectBackoff() { c.p.w.set(c.reach) }

// GetState implements csi.Conn.
func (c *driverConn) GetState() (state connectivity.State) {
	c.p.w.set(func() { state = c.state })
	return state
}

// WaitForStateChange implements csi.Conn.
func (c *driverConn) WaitForStateChange(ctx context.Context, source connectivity.State) bool {
	c.p.w.mu.Lock()
	state, changed := c.state, c.changed
	c.p.w.mu.Unlock()
	if state != source {
		return true
	}
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close implements csi.Conn.
func (c *driverConn) Close() error {
	c.p.w.set(func() {
		c.p.w.csi.conns = slices.DeleteFunc(c.p.w.csi.conns, func(o *driverConn) bool { return o == c })
	})
	return nil
}

// NewStream implements csi.Conn. No call of CSI is a stream.
func (c *driverConn) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, errors.ErrUnsupported
}

// Invoke implements csi.Conn: it calls the driver. A call may fail before or after its effect, hang, or be the driver's
// or podrun's last one. What the driver was sent it may do although nobody waits for it any more.
func (c *driverConn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	p, w := c.p, c.p.w
	if p.killed() {
		return fake.ErrCut
	}
	call := method[strings.LastIndex(method, "/")+1:]
	request := args.(wire.Message)
	texts := map[protowire.Number]string{}
	_ = request.Each(func(n protowire.Number, _ uint64, text wire.Message) { texts[n] = string(text) })
	what := fmt.Sprintf("%d driver %s %s", p.number, call, w.csi.short(texts))
	d := w.draw(what)
	wait, ends := time.Duration(d%(16<<20)), false
	var before, after error
	var begun int
	w.set(func() {
		begun = w.csi.begun
		if !w.faulty {
			return
		}
		code := []codes.Code{codes.Internal, codes.Unavailable, codes.Aborted, codes.DeadlineExceeded}[d>>50%4]
		switch f := d >> 32 % 100; {
		case f < 6:
			before = status.Error(code, "fault")
		case f < 12:
			after = status.Error(code, "fault")
		case f < 24:
			wait += between(d, 100*time.Millisecond, 20*time.Second)
		case f < 27:
			wait += longestHang
		case f < 33:
			ends = true
		}
	})
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var given error // why nobody waits any more
	select {
	case <-p.dead:
		given = fake.ErrCut
	case <-ctx.Done():
		given = status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.csi.up || w.csi.begun != begun:
		before = status.Error(codes.Unavailable, "the driver is not there")
	case given != nil && chance(d>>40, 2):
		before = given
	case given == nil && p.mortal && chance(d>>24, 25):
		given = fake.ErrCut
		defer p.kill()
		if chance(d>>40, 2) {
			before = given
		}
	}
	w.step(fmt.Sprintf("%s -> %v, %v, given up %v, ends %v", what, before, after, given, ends))
	if before == nil {
		*reply.(*wire.Message), before = w.csi.act(w, call, texts)
	}
	if ends && w.csi.up {
		w.endDriver(true)
		after = status.Error(codes.Unavailable, "the driver has ended")
	}
	return firstOf(given, before, after)
}

// firstOf returns the first of several errors.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// short says what a call is about, without the directory of the simulation.
func (d *csiDriver) short(texts map[protowire.Number]string) string {
	text := fmt.Sprintf("%.8s", texts[1])
	for _, n := range []protowire.Number{2, 3, 4} {
		if in, is := strings.CutPrefix(texts[n], d.dir); is {
			if uid, is := d.podOf(texts[n]); is {
				in = string(uid)
			}
			text += fmt.Sprintf(" %.40s", in)
		}
	}
	return text
}

// act is what the driver does when it is called, whose rules are checked. The caller holds mu.
func (d *csiDriver) act(w *world, call string, texts map[protowire.Number]string) (wire.Message, error) {
	id := texts[1]
	switch call {
	case "NodeGetInfo":
		return wire.Message(nil).Text(1, "n"), nil
	case "NodeGetCapabilities":
		if !d.stages {
			return nil, nil
		}
		rpc := wire.Message(nil).Number(1, uint64(wire.StageUnstage))
		return wire.Message(nil).Within(1, wire.Message(nil).Within(1, rpc)), nil
	case "GetPluginCapabilities":
		return nil, nil
	case "NodeStageVolume":
		w.mustBeRecorded(func(r csi.Record) bool { return r.ID == id && r.Staging == texts[3] }, texts[3])
		d.mount(w, texts[3], id)
	case "NodePublishVolume":
		staging, target := texts[3], texts[4]
		if persistent := id == manyPods || id == onePod; d.stages && persistent && d.mounted[staging] != id {
			w.report("a volume is staged before it is published", "%s of %s", id, target)
		}
		uid, _ := d.podOf(target)
		w.mustBeRecorded(func(r csi.Record) bool { return r.ID == id && r.Target == target }, target)
		for _, other := range d.publications(id) {
			if id == onePod && other != uid {
				w.report("a volume of one pod is not in two", "%s is in %s (%s) and in %s (%s)", id, other, w.uids[other], uid, w.uids[uid])
			}
		}
		d.mount(w, target, id)
	case "NodeUnpublishVolume":
		d.unmount(w, texts[2], id)
	case "NodeUnstageVolume":
		if in := d.publications(id); len(in) > 0 {
			w.report("a volume is unpublished before it is unstaged", "%s is in %s", id, in)
		}
		d.unmount(w, texts[2], id)
	default:
		return nil, status.Error(codes.Unimplemented, call)
	}
	return nil, nil
}

// mustBeRecorded checks that a call was recorded before it was made. The caller holds mu.
func (w *world) mustBeRecorded(is func(csi.Record) bool, at string) {
	if all, err := csi.Records(w.dirs); err != nil || !slices.ContainsFunc(all, is) {
		w.report("what a driver is asked for is recorded before", "%s, %v", strings.TrimPrefix(at, w.csi.dir), err)
	}
}

// mount mounts a volume, unless it is mounted. The directory then has a file, so that it cannot be removed. The caller
// holds mu.
func (d *csiDriver) mount(w *world, path, id string) {
	if was := d.mounted[path]; was != "" && was != id {
		w.report("one volume is mounted at a path", "%s and %s at %s", was, id, path)
	}
	d.mounted[path] = id
	if err := errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(filepath.Join(path, "mounted"), nil, 0o600)); err != nil {
		w.report("the simulation works", "%v", err)
	}
}

// unmount unmounts a volume, if it is mounted. The caller holds mu.
func (d *csiDriver) unmount(w *world, path, id string) {
	if was := d.mounted[path]; was != "" && was != id {
		w.report("what is unmounted is the volume that was asked for", "%s, and not %s, is at %s", was, id, path)
	}
	uid, _ := d.podOf(path)
	for _, i := range w.instances {
		if i.live && !i.lost && i.pod.UID == uid && slices.ContainsFunc(i.pod.Spec.Volumes, func(v v1.Volume) bool {
			return d.target(i.pod, &v) == path
		}) {
			w.report("what runs keeps its volumes", "%s of %s (%.8s) runs; %s", i.name, i.key, i.id, path)
		}
	}
	delete(d.mounted, path)
	_ = os.Remove(filepath.Join(path, "mounted"))
}

// registers registers the driver with a podrun, as package pluginregistry does, until ctx ends.
func (p *process) registers(ctx context.Context, v *volume.Volumes) {
	w, at := p.w, filepath.Join(p.w.csi.dir, "plugins", "d", "csi.sock")
	defer v.CSI().Deregister(simulatedDriver, at)
	known := 0
	for ctx.Err() == nil {
		w.mu.Lock()
		registrar, changed := w.csi.registrar, w.csi.changed
		d := w.drawn(fmt.Sprintf("%d sees the driver", p.number))
		w.mu.Unlock()
		var again <-chan time.Time
		if registrar != known {
			select {
			case <-ctx.Done():
				return
			case <-time.After(between(d, time.Millisecond, 2*time.Second)):
			}
			switch {
			case registrar == 0:
				v.CSI().Deregister(simulatedDriver, at)
				known = 0
			case v.CSI().Register(ctx, simulatedDriver, at, []string{"1.0.0"}) == nil:
				known = registrar
			default:
				again = time.After(between(d>>8, time.Second, 10*time.Second))
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
}

// endDriver ends the driver, which may come back by itself. What it has mounted stays. The caller holds mu.
func (w *world) endDriver(returns bool) {
	w.csi.up = false
	d := w.drawn("the driver ends")
	w.step("  the CSI driver ends")
	for _, c := range w.csi.conns {
		if c.state == connectivity.Ready {
			c.to(connectivity.Idle)
		}
	}
	if chance(d, 2) { // its registrar too
		w.csi.registrar = 0
		close(w.csi.changed)
		w.csi.changed = make(chan struct{})
	}
	most := 20 * time.Second
	if chance(d>>4, 4) {
		most = longestAbsence
	}
	if returns {
		time.AfterFunc(between(d>>8, time.Second, most), func() { w.set(w.beginDriver) })
	}
}

// beginDriver begins the driver, if it is not there. The caller holds mu.
func (w *world) beginDriver() {
	if w.csi.up {
		return
	}
	w.csi.up = true
	w.csi.begun++
	w.step("  the CSI driver begins")
	if w.csi.registrar == 0 {
		w.csi.registrars++
		w.csi.registrar = w.csi.registrars
		close(w.csi.changed)
		w.csi.changed = make(chan struct{})
	}
}

// driverComesOrGoes ends the driver, or begins it before its time.
func (s *simulation) driverComesOrGoes() {
	s.w.set(func() {
		if s.w.csi.up {
			s.w.endDriver(true)
		} else {
			s.w.beginDriver()
		}
	})
}

// unmountAll is what the end of the machine does. The caller holds mu.
func (w *world) unmountAll() {
	for path := range w.csi.mounted {
		_ = os.Remove(filepath.Join(path, "mounted"))
	}
	clear(w.csi.mounted)
	if w.csi.up {
		w.endDriver(true)
	}
}

// csiFiles returns what the process has recorded of volumes. Only serve is in contact with drivers.
func (p *process) csiFiles() map[string]string {
	if p.command != owner.Serve {
		return nil
	}
	all := map[string]string{}
	found, _ := filepath.Glob(filepath.Join(layout.CSIVolumes(p.w.dirs), "*.json"))
	for _, path := range found {
		if text, err := os.ReadFile(path); err == nil {
			all[path] = string(text)
		}
	}
	return all
}

// undoCSI takes back what a killed process recorded after its death.
func (p *process) undoCSI() {
	for path := range p.csiFiles() {
		if _, was := p.csiAtDeath[path]; !was {
			_ = os.Remove(path)
		}
	}
	for path, text := range p.csiAtDeath {
		_ = os.WriteFile(path, []byte(text), 0o600)
	}
}

// waitsForVolume reports that a pod waits for the volume of one pod, which another one has, and says so. The caller
// holds mu.
func (w *world) waitsForVolume(key pod.Key, p, status *v1.Pod) bool {
	wants := slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Name == onePod })
	if !wants || len(w.live(key, "")) > 0 {
		return false
	}
	text, _ := json.Marshal(status.Status)
	other := slices.ContainsFunc(w.csi.publications(onePod), func(uid pod.UID) bool { return w.uids[uid] != key })
	return other && strings.Contains(string(text), "it is ReadWriteOncePod, and the pod default/")
}

// mountedRemains says what is mounted of a pod, and what is recorded; of all pods if the UID is "". A pod whose
// checkpoint is torn keeps what it has.
func (w *world) mountedRemains(uid pod.UID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	records, err := csi.Records(w.dirs)
	if err != nil {
		return err.Error()
	}
	var left []string
	kept := map[string]bool{}
	for _, r := range records {
		if w.torn[r.UID] {
			kept[r.Target], kept[r.Staging] = true, true
		} else if uid == "" || r.UID == uid {
			left = append(left, fmt.Sprintf("a record of %s of %s", r.Volume, r.Pod))
		}
	}
	for path, id := range w.csi.mounted {
		if of, _ := w.csi.podOf(path); !kept[path] && (uid == "" || of == uid) {
			left = append(left, id+" is mounted at "+strings.TrimPrefix(path, w.csi.dir))
		}
	}
	slices.Sort(left)
	return strings.Join(left, ", ")
}

// withoutDriver: what runs is not touched by the end of the driver, and starts again without it; pods without a volume
// of it do not wait; those with one are removed, and what they had is unpublished when it is back.
func (s *simulation) withoutDriver() {
	at := slices.IndexFunc(s.pods[:], func(of offer) bool { return usesDriver(of.pod) })
	if at < 0 || !chance(scatter(s.w.seed, "without the CSI driver", 0), 4) { // it takes long
		return
	}
	s.pass(longestHang + time.Minute) // what still follows from a fault is done
	s.await("everything is still so", s.unsettled)
	var all []*instance
	s.w.set(func() {
		for _, of := range s.pods {
			if !usesDriver(of.pod) || of.pod.Spec.RestartPolicy != v1.RestartPolicyAlways {
				continue
			}
			for _, i := range s.w.live(pod.Key{Namespace: "default", Name: of.pod.Name}, "") {
				if !isInit(i) && !i.lost && i.asked.IsZero() {
					all = append(all, i)
				}
			}
		}
	})
	s.note("without the CSI driver")
	s.w.set(func() {
		if s.w.csi.up {
			s.w.endDriver(false)
		}
	})
	s.pass(time.Duration(s.r.Int64N(int64(3 * time.Minute))))
	s.serve.kill()
	s.pass(time.Minute)
	s.w.set(func() {
		for _, i := range all {
			if !i.asked.IsZero() {
				s.w.report("what runs is not touched by the end of the driver", "%s %s (%.8s)", i.key, i.name, i.id)
			}
		}
	})
	if len(all) > 0 && all[0].live {
		s.w.exit(all[0], 1, "")
		s.await("a container starts again without the driver", func() string {
			s.w.mu.Lock()
			defer s.w.mu.Unlock()
			if len(s.w.live(all[0].key, all[0].name)) == 0 {
				return fmt.Sprintf("%s of %s does not live", all[0].name, all[0].key)
			}
			return ""
		})
	}
	const other = servedPods - 1 // never has such a volume
	s.pods[other] = offer{pod: randomPod(s.r, other, s.next(), v1.RestartPolicyAlways)}
	s.put(other)
	s.await("a pod without a volume of the driver does not wait for it", func() string { return s.w.settled(s.pods[other].pod) })
	key, uid := pod.Key{Namespace: "default", Name: s.pods[at].pod.Name}, s.pods[at].pod.UID
	s.pods[at].pod = nil
	s.put(at)
	s.await("a pod is removed without its driver", func() string { return strings.Join(s.w.remains(key), ", ") })
	s.w.set(s.w.beginDriver)
	s.await("what is published is unpublished when the driver is back", func() string { return s.w.mountedRemains(uid) })
}
