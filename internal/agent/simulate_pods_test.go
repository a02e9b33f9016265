package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// kindsOfPods are the restart policies of the simulation's pods; services are the most of them.
var kindsOfPods = []v1.RestartPolicy{
	v1.RestartPolicyAlways, v1.RestartPolicyAlways, v1.RestartPolicyAlways, v1.RestartPolicyNever, v1.RestartPolicyOnFailure,
}

// randomPod makes version n of a pod.
func randomPod(r *rand.Rand, index, n int, policy v1.RestartPolicy) *v1.Pod {
	graces := []int64{1, 3, 5, 10, 20}
	p := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("p%d", index), Labels: map[string]string{"n": fmt.Sprint(n)},
			UID: pod.UID(fmt.Sprintf("%08d-0000-4000-8000-%012d", index, n)),
		},
		Spec: v1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: &graces[r.IntN(len(graces))]},
	}
	image := fmt.Sprintf("image-%d:%d", index, n)
	add := func(name string) v1.Container { return v1.Container{Name: name, Image: image} }
	if r.IntN(2) == 0 {
		p.Spec.InitContainers = append(p.Spec.InitContainers, add("i"))
	}
	if r.IntN(3) == 0 {
		always := v1.ContainerRestartPolicyAlways
		c := add("s")
		c.RestartPolicy = &always
		if r.IntN(2) == 0 {
			c.StartupProbe = simulatedProbe("startup", 2)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		if r.IntN(3) == 0 {
			p.Spec.InitContainers = append(p.Spec.InitContainers, add("j"))
		}
	}
	for _, name := range []string{"a", "b"}[:1+r.IntN(2)] {
		c := add(name)
		if policy == v1.RestartPolicyAlways {
			probesOf(r, &c)
		}
		hooksOf(r, &c)
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if index < servedPods-1 && r.IntN(2) == 0 { // those of a once wait for no plugin
		for i := range p.Spec.InitContainers {
			if r.IntN(3) == 0 {
				askFor(&p.Spec.InitContainers[i], 1)
			}
		}
		askFor(&p.Spec.Containers[0], 1+r.IntN(2))
	}
	if r.IntN(2) == 0 {
		optional := true
		p.Spec.Volumes = []v1.Volume{{Name: "c", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: fmt.Sprintf("c%d", index)}, Optional: &optional,
		}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "c", MountPath: "/c"}}
	}
	if index < servedPods-1 { // as with devices
		volumesOf(r, p)
	}
	return p
}

func simulatedProbe(command string, period int32) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}},
		PeriodSeconds: period, FailureThreshold: 3, TimeoutSeconds: 2,
	}
}

func probesOf(r *rand.Rand, c *v1.Container) {
	if r.IntN(3) == 0 {
		c.StartupProbe = simulatedProbe("startup", 3)
		c.StartupProbe.FailureThreshold = 10
	}
	if r.IntN(2) == 0 {
		c.ReadinessProbe = simulatedProbe("ready", 5)
	}
	if r.IntN(4) == 0 {
		c.LivenessProbe = simulatedProbe("live", 7)
	}
}

func hooksOf(r *rand.Rand, c *v1.Container) {
	hook := func(command string) *v1.LifecycleHandler {
		return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{command}}}
	}
	c.Lifecycle = &v1.Lifecycle{}
	if r.IntN(3) == 0 {
		c.Lifecycle.PreStop = hook("pre")
	}
	if r.IntN(4) == 0 {
		c.Lifecycle.PostStart = hook("post")
	}
	if *c.Lifecycle == (v1.Lifecycle{}) {
		c.Lifecycle = nil
	}
}

// edited is the next version of a pod: changed in place, another image under its UID, or another revision.
func edited(r *rand.Rand, index, n int, last *v1.Pod) *v1.Pod {
	next := last.DeepCopy()
	next.Labels["n"] = fmt.Sprint(n)
	switch r.IntN(5) {
	case 0: // the label only
	case 1:
		limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse(fmt.Sprintf("%dm", 100+n))}
		of := &next.Spec.Containers[0].Resources
		if q, is := of.Limits[simulatedDevice]; is {
			limits[simulatedDevice] = q
		}
		of.Limits = limits
	case 2:
		next = randomPod(r, index, n, last.Spec.RestartPolicy)
		next.UID = last.UID
	default:
		next = randomPod(r, index, n, last.Spec.RestartPolicy)
	}
	return next
}

// manifestOf is a pod's manifest, with the ConfigMap that it may refer to. Each version's has a size of its own: files
// are told apart by their size and their time, which is not the simulation's.
func (s *simulation) manifestOf(p *v1.Pod) []byte {
	s.texts++
	p = p.DeepCopy()
	p.Annotations = map[string]string{"pad": fmt.Sprintf("%0*d", s.texts, 0)}
	config := v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "c" + p.Name[1:]}, Data: map[string]string{"k": "v"},
	}
	one, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	two, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	s.w.set(func() { s.w.uids[p.UID] = pod.Key{Namespace: "default", Name: p.Name} })
	for _, c := range pod.AllContainers(p) {
		s.w.engine.AddImage(c.Image, fake.Script{})
	}
	return fmt.Appendf(nil, "%s\n---\n%s\n", one, two)
}

// settled reports that a wanted pod is as its manifest says; why says what it is not.
func (w *world) settled(p *v1.Pod) (why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := pod.Key{Namespace: "default", Name: p.Name}
	status := w.statuses[key]
	if status == nil {
		return "it has no status"
	}
	if got := status.Labels["n"]; got != p.Labels["n"] {
		return fmt.Sprintf("its status is of version %s, not %s", got, p.Labels["n"])
	}
	if w.waitsRightly(key, status, w.engine.SandboxIDs()) || w.waitsForVolume(key, p, status) {
		return ""
	}
	live := w.live(key, "")
	for _, i := range live {
		if i.spec.Image != p.Spec.Containers[0].Image {
			return fmt.Sprintf("%s of image %s lives", i.name, i.spec.Image)
		}
	}
	if p.Spec.RestartPolicy != v1.RestartPolicyAlways {
		if phase := status.Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
			return "it is " + string(phase)
		}
		if len(live) > 0 {
			return "it has ended, and " + live[0].name + " lives"
		}
		if fake.HasCgroup(w.engine, status.UID) {
			return "it has ended, and has a cgroup, which weighs as if it ran"
		}
		return ""
	}
	for _, c := range p.Spec.Containers {
		if len(w.live(key, c.Name)) != 1 {
			return c.Name + " does not live"
		}
	}
	if missing := w.missingKey(status); missing != "" {
		return missing
	}
	if missing := w.missingVolume(p); missing != "" {
		return missing
	}
	for _, c := range status.Status.Conditions {
		if c.Type == v1.PodReady && c.Status != v1.ConditionTrue {
			return "it is not ready: " + c.Message
		}
	}
	return ""
}

// remains says what is left of a pod on the machine.
func (w *world) remains(key pod.Key) (left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.live(key, "") {
		left = append(left, "a process of "+i.name)
	}
	for uid, of := range w.uids {
		if of != key || w.torn[uid] { // what is torn is kept for whoever wants to look
			continue
		}
		if _, err := w.disk.Stat(uid); err == nil {
			left = append(left, "a checkpoint of "+string(uid))
		}
		if fake.HasCgroup(w.engine, uid) {
			left = append(left, "the cgroup of "+string(uid))
		}
		if pathExists(w.dirs.Pod(uid)) {
			left = append(left, "the directory of "+string(uid))
		}
	}
	for _, id := range w.engine.SandboxIDs() {
		if w.keys[id] == key {
			left = append(left, "sandbox "+id)
		}
	}
	for _, path := range []string{w.dirs.PodLock(key), w.dirs.StatusFiles().Pod(key), w.dirs.StatusFiles().NotOwned(key)} {
		if pathExists(path) {
			left = append(left, path)
		}
	}
	return left
}

// serves reports that serve has written down that it keeps the pod.
func (w *world) serves(key pod.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var newest checkpoint.Checkpoint
	for uid, of := range w.uids {
		var c checkpoint.Checkpoint
		if text, _, err := w.disk.Read(uid); of == key && err == nil && json.Unmarshal(text, &c) == nil && c.Sequence > newest.Sequence {
			newest = c
		}
	}
	return newest.Owner == owner.Serve
}

// bound is how long everything may take to settle once nothing fails any more.
const bound = 8 * time.Minute
