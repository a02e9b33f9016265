package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// The rules that hold at every change of the machine, whatever happens. Each check returns what is wrong; "": nothing.
// Its caller holds the world's mutex.

// slack is what calls take by themselves.
const slack = 200 * time.Millisecond

// startRules hold when a process has just begun.
var startRules = []struct {
	name  string
	check func(w *world, i *instance) string
}{
	{"one live instance of a container", func(w *world, i *instance) string {
		for _, other := range w.live(i.key, i.name) {
			return fmt.Sprintf("attempt %d (%.8s) lives", other.attempt, other.id)
		}
		return ""
	}},
	{"init containers complete before the rest, in order; sidecars gate", initOrder},
	{"a job's container succeeds once", func(w *world, i *instance) string {
		if i.pod.Spec.RestartPolicy == v1.RestartPolicyAlways || isInit(i) {
			return ""
		}
		for _, before := range w.former(i) {
			if !before.lost && before.boot == w.boot && before.code == 0 && before.asked.IsZero() {
				return fmt.Sprintf("attempt %d (%.8s) has succeeded", before.attempt, before.id)
			}
		}
		return ""
	}},
	{"a container that is never restarted runs once", func(w *world, i *instance) string {
		if i.pod.Spec.RestartPolicy != v1.RestartPolicyNever || isInit(i) {
			return ""
		}
		for _, before := range w.former(i) {
			if !before.lost {
				return fmt.Sprintf("attempt %d (%.8s) has run", before.attempt, before.id)
			}
		}
		return ""
	}},
	{"back-off within its table", backoffKept},
	{"an index of a Job runs once at a time, and not after its success", indexOnce},
	{"a time of a CronJob runs once, and is recorded before", cronOnce},
	{"what is rolled back is not tried again", notTriedAgain},
	{"a container has the devices that it asks for", ownDevices},
	{"a container is in the cgroup of its pod", func(w *world, i *instance) string {
		if fake.HasCgroup(w.engine, i.pod.UID) {
			return ""
		}
		return "there is none"
	}},
	{"nothing of a pod runs before all of its volumes are there", func(w *world, i *instance) string {
		if missing := w.missingVolume(i.pod); missing != "" || !hasConfig(i.pod) {
			return missing
		}
		if _, err := os.Lstat(w.dirs.Revision(i.pod.UID).Volume(layout.KindConfigMap, "c")); err != nil {
			return err.Error()
		}
		return ""
	}},
}

// former returns the instances of the same container of the same life of the same revision, in their order.
func (w *world) former(i *instance) (all []*instance) {
	for _, o := range w.instances {
		if o.pod.UID == i.pod.UID && o.name == i.name && o.life == i.life && o.rerun == i.rerun && o != i {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *instance) int { return a.began.Compare(b.began) })
	return all
}

// ranIn returns the instances of a container in a sandbox.
func (w *world) ranIn(sandbox, name string) (all []*instance) {
	for _, o := range w.instances {
		if o.sandbox == sandbox && o.name == name {
			all = append(all, o)
		}
	}
	return all
}

func initOrder(w *world, i *instance) string {
	for _, c := range i.pod.Spec.InitContainers {
		if c.Name == i.name {
			return ""
		}
		all := w.ranIn(i.sandbox, c.Name)
		if c.RestartPolicy != nil {
			ready := func(o *instance) bool { return c.StartupProbe == nil || o.startupOK }
			if !slices.ContainsFunc(all, ready) {
				return "sidecar " + c.Name + " has not started in this sandbox"
			}
			continue
		}
		if !slices.ContainsFunc(all, func(o *instance) bool { return !o.live && o.code == 0 }) {
			return "init container " + c.Name + " has not completed in this sandbox"
		}
	}
	return ""
}

// simulatedBackoff is the simulation's longest crash back-off.
const simulatedBackoff = 40 * time.Second

func backoffKept(w *world, i *instance) string {
	all := w.former(i)
	all = slices.DeleteFunc(all, func(o *instance) bool { return o.sandbox != i.sandbox })
	for n, o := range slices.Backward(all) {
		resized := pod.ResourcesOf(o.pod, o.spec) != pod.ResourcesOf(i.pod, i.spec)
		if o.ended.Sub(o.began) >= 10*time.Minute || resized { // a long run resets it, and so do other resources
			all = all[n+1:]
			break
		}
	}
	if len(all) < 2 {
		return ""
	}
	last := all[len(all)-1]
	if last.lost || w.clockSet.After(all[0].began.Add(-time.Minute)) {
		// When it ended is not known, or not by the clock that counts; or a podrun that was started since took a run
		// during which the clock was set for a long one, after which the back-off begins anew.
		return ""
	}
	steps := len(all) - 2
	if all[0].attempt == 0 && byProbe(all[0]) { // the first that a probe ends does not count
		steps--
	}
	if steps < 0 {
		return ""
	}
	least := min(10*time.Second<<min(steps, 4), simulatedBackoff)
	if byProbe(last) && last.ended.Sub(last.began) >= least { // the kubelet counts from the end before
		return ""
	}
	if pause := i.began.Sub(last.ended); pause < least-slack {
		return fmt.Sprintf("it begins %s after the end of run %d in this sandbox", pause, len(all))
	}
	return ""
}

// byProbe reports whether podrun has ended the instance, which has a probe that may be why.
func byProbe(i *instance) bool {
	return !i.asked.IsZero() && (i.spec.StartupProbe != nil || i.spec.LivenessProbe != nil)
}

// signalRules hold when a process is sent a signal.
var signalRules = []struct {
	name  string
	check func(w *world, i *instance, signal string, from *process) string
}{
	{"SIGTERM before SIGKILL", func(w *world, i *instance, signal string, _ *process) string {
		if signal == "SIGKILL" && i.told.IsZero() && grace(i) > 0 {
			return fmt.Sprintf("it was not sent SIGTERM (asked %s)", i.asked)
		}
		return ""
	}},
	{"the grace period is kept", func(w *world, i *instance, signal string, _ *process) string {
		begun := i.asked
		if isInit(i) { // a sidecar's begins with the others'
			for _, o := range w.instances {
				if o.sandbox == i.sandbox && !o.asked.IsZero() && o.asked.Before(begun) {
					begun = o.asked
				}
			}
		}
		if signal != "SIGKILL" || begun.IsZero() || w.clockSet.After(begun) {
			return ""
		}
		if had := time.Since(begun); had < grace(i)-slack {
			return fmt.Sprintf("it had %s of %s", had, grace(i))
		}
		return ""
	}},
	{"the preStop hook is not skipped", func(_ *world, i *instance, signal string, from *process) string {
		hooked := i.spec.Lifecycle != nil && i.spec.Lifecycle.PreStop != nil
		if signal == "SIGKILL" || !hooked || len(i.hooks) > 0 || grace(i) == 0 {
			return ""
		}
		// Who began to end it may have been killed just before the hook, and its grace period be over since.
		if from != i.askedBy && time.Since(from.born) < grace(i)+slack {
			return ""
		}
		return "it never ran"
	}},
}

func grace(i *instance) time.Duration {
	return time.Duration(*i.pod.Spec.TerminationGracePeriodSeconds) * time.Second
}

// preStop takes note of a hook that is to begin, or that ran.
func (w *world) preStop(id string, from *process, ran int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.instances[id]
	if i == nil {
		return
	}
	i.hooks[from.number] += ran
	if i.asked.IsZero() {
		i.asked, i.askedBy = time.Now(), from
	}
	if n := i.hooks[from.number]; n > 1 {
		w.report("the preStop hook runs once per process", "%s %s (%.8s): %d times", i.key, i.name, id, n)
	}
	all := 0
	for _, n := range i.hooks {
		all += n
	}
	// What could not be saved is not known to the next process.
	if most := 2 + w.unsaved[i.pod.UID]; all > most {
		w.report("the preStop hook runs twice at most", "%s %s (%.8s): %d times", i.key, i.name, id, all)
	}
}

// removing takes note of an instance that is removed.
func (w *world) removing(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.instances[id]; i != nil && i.live {
		w.report("what lives is not removed", "%s %s (%.8s)", i.key, i.name, id)
	}
}

// removingPod takes note of a revision that is removed.
func (w *world) removingPod(uid pod.UID, from *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.protected[uid] && !w.fromEarlierBoot(uid) && from.command == owner.Serve {
		w.report("nothing is removed while its source is unreadable", "%s of %s", uid, w.uids[uid])
	}
	if w.left[uid] && from.command == owner.Serve {
		w.report("what a once left stays until somebody takes it", "%s of %s", uid, w.uids[uid])
	}
}

// fromEarlierBoot reports that all that ran of a revision did so before the machine was restarted: what is removed then is
// so because it begins anew. The caller holds mu.
func (w *world) fromEarlierBoot(uid pod.UID) bool {
	ran := false
	for _, i := range w.instances {
		if i.pod.UID != uid {
			continue
		}
		if ran = true; i.boot == w.boot {
			return false
		}
	}
	return ran
}

// statusRules hold for each status that is published.
var statusRules = []struct {
	name  string
	check func(w *world, p *v1.Pod) string
}{
	{"a revision is rolled back to one that was healthy", rolledBackRightly},
	{"ready only by an instance's own probes", func(w *world, p *v1.Pod) string {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			_, id, _ := strings.Cut(s.ContainerID, "://")
			i := w.instances[id]
			if !s.Ready || i == nil || s.State.Running == nil {
				continue
			}
			if i.spec.StartupProbe != nil && !i.startupOK {
				return fmt.Sprintf("%s (%.8s) is ready; its startup probe has never succeeded", s.Name, id)
			}
			if i.spec.ReadinessProbe != nil && !i.readyOK {
				return fmt.Sprintf("%s (%.8s) is ready; its readiness probe has never succeeded", s.Name, id)
			}
		}
		return ""
	}},
	{"what was seen to end is not seen to live again", func(w *world, p *v1.Pod) string {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			_, id, _ := strings.Cut(s.ContainerID, "://")
			switch {
			case s.State.Running != nil && w.seenEnded[id]:
				return fmt.Sprintf("%s (%.8s)", s.Name, id)
			case s.State.Terminated != nil:
				w.seenEnded[id] = true
			}
			if last := s.LastTerminationState.Terminated; last != nil {
				_, id, _ := strings.Cut(last.ContainerID, "://")
				w.seenEnded[id] = true
			}
		}
		return ""
	}},
	{"restart counts never go back", func(w *world, p *v1.Pod) string {
		if _, err := w.disk.Stat(p.UID); err != nil {
			return "" // it is being removed, or begins
		}
		all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
		if !slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.ContainerID != "" }) {
			return "" // it starts again: what is left of the earlier run is removed first
		}
		for _, s := range all {
			at := string(p.UID) + s.Name
			if last, was := w.restarts[at]; was && s.RestartCount < last {
				return fmt.Sprintf("%s: from %d to %d", s.Name, last, s.RestartCount)
			}
			w.restarts[at] = s.RestartCount
		}
		return ""
	}},
	{"a volume keeps what its manifests say", func(w *world, p *v1.Pod) string {
		if !hasConfig(p) || len(w.live(pod.KeyOf(p), "")) == 0 || p.DeletionTimestamp != nil {
			return ""
		}
		if _, err := os.Lstat(w.dirs.Revision(p.UID).Volume(layout.KindConfigMap, "c")); err != nil {
			delete(w.shown, p.UID)
			return "" // not made yet
		}
		for _, i := range w.live(pod.KeyOf(p), "") {
			if i.pod.UID != p.UID {
				return ""
			}
		}
		// A container that starts while its ConfigMap's place cannot be read goes without: that is what optional says.
		missing := w.missingKey(p)
		if missing == "" {
			w.shown[p.UID] = true
		} else if w.shown[p.UID] {
			return missing
		}
		return ""
	}},
}

// hasConfig reports whether a pod has the volume of a ConfigMap.
func hasConfig(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.ConfigMap != nil })
}

// missingKey says that a pod's volume lacks the key of its optional ConfigMap, whose manifest is there.
func (w *world) missingKey(p *v1.Pod) string {
	if !hasConfig(p) {
		return ""
	}
	if _, err := os.Stat(filepath.Join(w.dirs.Revision(p.UID).Volume(layout.KindConfigMap, "c"), "k")); err != nil {
		return fmt.Sprintf("the key of an optional ConfigMap is gone: %v", err)
	}
	return ""
}
