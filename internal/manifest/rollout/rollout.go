// Package rollout lets the pods of what is updated without downtime be replaced by and by: a stage between
// the pods that the manifests want and those that are desired now. When a pod may go is package rollouts' decision.
//
// It is pure. What it knows of an update that is under way is which pods were desired last: those of the former
// template among them stay desired until it is their turn.
//
// Begin reading at Rollout.Apply.
package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/rollback"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
	"podrun.io/podrun/internal/workload/rollouts"
)

// Rollout replaces pods by and by.
type Rollout struct {
	// SharesPorts reports that two pods of a workload may have the same host port, which answers from one of them.
	// It may be nil: they may not.
	SharesPorts func() bool
}

// Apply changes the pods of d, which are those that the manifests want, to those that are desired now. before are the
// pods that were desired last or, when podrun has just started, those that exist.
func (r Rollout) Apply(d *manifest.Desired, recorded workload.Recorded, before map[pod.Key]*v1.Pod) {
	sharesPorts := r.SharesPorts != nil && r.SharesPorts()
	var all []*update
	for _, w := range d.Workloads {
		if strategy, rolling := w.Rolling(); rolling && w.Replicas > 0 {
			u := &update{id: w.ID, strategy: strategy, key: func(i int) pod.Key { return w.PodKey(w.Start + i) }}
			for i := range w.Replicas {
				if key := u.key(i); isOf(d.Pods[key], w.ID) {
					u.replicas = append(u.replicas, key)
				}
			}
			switch {
			case len(u.replicas) == 0:
				continue
			case w.Kind == workload.StatefulSet:
				slices.Reverse(u.replicas)
			case w.Kind == workload.DaemonSet:
				u.key = func(i int) pod.Key { return numbered(d.Pods[u.replicas[0]], i) }
			}
			all = append(all, u)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(d.Pods), pod.Key.Compare) {
		if p := d.Pods[key]; p.Annotations[pod.AnnotationUpdate] == pod.RollingUpdate {
			all = append(all, &update{
				id: rollback.Of(p), strategy: rollouts.Strategy{Surge: 1}, replicas: []pod.Key{key},
				key: func(i int) pod.Key { return numbered(p, i) },
			})
		}
	}
	there := map[string]int{}
	for _, p := range before {
		if group, surge := pod.UpdateGroup(p); surge {
			there[group]++
		}
	}
	for _, u := range all {
		u.d, u.recorded, u.before, u.there = d, recorded, before, there
		u.begin(sharesPorts)
		u.apply()
	}
}

// isOf reports that p is a pod of a workload, and not one of the same name that is defined elsewhere and used instead.
func isOf(p *v1.Pod, id workload.ID) bool {
	if p == nil {
		return false
	}
	of, is := workload.Of(p)
	return is && of == id
}

// numbered returns the key of a pod beyond p, with a number in its name before that of the node.
func numbered(p *v1.Pod, i int) pod.Key {
	name := pod.ManifestName(p)
	return pod.Key{Namespace: p.Namespace, Name: fmt.Sprintf("%s-%d%s", name, i, strings.TrimPrefix(p.Name, name))}
}

// patience is how long a former pod must not have been ready to be replaced before another one is ready.
const patience = 30 * time.Second

// update is the update of one workload, or of one pod.
type update struct {
	id       workload.ID
	strategy rollouts.Strategy
	// replicas are the keys of the pods, beyond of those that there may be during the update, and key returns that of
	// the pod with a number.
	replicas, beyond []pod.Key
	key              func(i int) pod.Key

	d        *manifest.Desired
	recorded workload.Recorded
	before   map[pod.Key]*v1.Pod
	group    string         // pod.UpdateGroup of all of its pods
	there    map[string]int // how many pods beyond the replicas each group has
}

// begin completes u.
func (u *update) begin(sharesPorts bool) {
	first := u.first()
	u.group, _ = pod.UpdateGroup(first)
	if pod.RunsAlone(first, sharesPorts) != "" {
		u.strategy.Surge, u.strategy.Unavailable = 0, max(u.strategy.Unavailable, 1)
	}
	if u.d.Revisions[u.id] != nil {
		// What is rolled back if it does not stay ready must not replace the last pod before that is known.
		u.strategy.MinReady = revisions.SettledAfter(first, u.strategy.MinReady)
	}
	u.beyond = u.extra()
}

// first returns a pod of the template that is wanted.
func (u *update) first() *v1.Pod { return u.d.Pods[u.replicas[0]] }

// extra returns the keys of the pods that there may be beyond the replicas: of those that there are, and of as many
// others as the strategy allows.
func (u *update) extra() []pod.Key {
	var all []pod.Key
	free, more := u.strategy.Surge, u.there[u.group]
	for i := len(u.replicas); (free > 0 || more > 0) && i < len(u.replicas)+workload.MaxReplicas; i++ {
		key := u.key(i)
		was := u.before[key]
		switch {
		case u.d.Pods[key] != nil: // another manifest's
		case was != nil && was.Annotations[pod.AnnotationSurge] != "" && u.owns(was):
			all = append(all, key)
			more--
		case was == nil && u.recorded.Exists[key] == "" && free > 0:
			all = append(all, key)
			free--
		}
	}
	return all
}

func (u *update) owns(p *v1.Pod) bool {
	group, _ := pod.UpdateGroup(p)
	return group == u.group
}

func (u *update) apply() {
	var replicas, beyond []rollouts.Pod
	for _, key := range u.replicas {
		p, serves := u.observed(key, u.d.Pods[key])
		out := u.recorded.Running[key].Unready
		switch {
		case serves:
			p.Unknown = !p.Available // podrun may have just started
		case p.State == rollouts.Former && u.strategy.Surge > 0 && out < patience:
			p.Unknown = true // it may be about to start, as after a reboot, and the pod beyond it does not wait for it
			u.wakeAt(u.recorded.Now.Add(patience - out))
		}
		replicas = append(replicas, p)
	}
	for _, key := range u.beyond {
		p := rollouts.Pod{}
		if u.before[key] != nil {
			p, _ = u.observed(key, u.surge(key))
		}
		beyond = append(beyond, p)
	}
	chosen, extra := rollouts.Decide(replicas, beyond, u.strategy)
	for i, key := range u.beyond { // before the replicas, which they are made from
		switch {
		case extra[i] == rollouts.Update, extra[i] == rollouts.Keep && beyond[i].State == rollouts.Updated:
			u.d.Pods[key] = u.surge(key)
			if former, is := u.d.Former[u.replicas[0]]; is {
				u.d.Former[key] = former
			}
		case extra[i] == rollouts.Keep:
			u.keep(key)
		}
	}
	for i, key := range u.replicas {
		if chosen[i] == rollouts.Keep {
			u.keep(key)
		}
	}
}

// keep lets a pod of the former template be desired further on.
func (u *update) keep(key pod.Key) {
	u.d.Pods[key] = u.before[key]
	delete(u.d.Former, key)
}

// surge returns the pod beyond the replicas with a key.
func (u *update) surge(key pod.Key) *v1.Pod {
	p := u.first().DeepCopy()
	p.Name = key.Name
	manifest.SetUID(p, pod.UID(manifest.Digest([]byte(u.first().UID), "\nsurge:", key.Name)))
	_, of, _ := strings.Cut(u.group, "/")
	manifest.Annotate(p, pod.AnnotationSurge, of)
	return p
}

// observed returns what is known of a pod, of which wanted is what the manifest wants, and whether it is ready.
func (u *update) observed(key pod.Key, wanted *v1.Pod) (p rollouts.Pod, serves bool) {
	was, seen := u.before[key], u.recorded.Running[key]
	switch {
	case was == nil || !u.owns(was):
		return rollouts.Pod{}, false
	case seen.Pod == nil:
		return rollouts.Pod{State: state(was, wanted), Unknown: true}, false
	}
	p = rollouts.Pod{State: state(was, wanted)}
	if !manifest.SameRun(seen.Pod, was) || seen.Pod.DeletionTimestamp != nil || !pod.IsReady(seen.Pod) {
		return p, false // it is not ready, or not there yet
	}
	p.Available = seen.Ready >= u.strategy.MinReady && (p.State == rollouts.Former || seen.Shown >= u.strategy.MinReady)
	switch {
	case p.Available:
	case seen.Ready < u.strategy.MinReady:
		u.wakeAt(u.recorded.Now.Add(u.strategy.MinReady - seen.Ready))
	default: // its status is old
		u.d.Inspect = append(u.d.Inspect, key)
		u.wakeAt(u.recorded.Now.Add(revisions.Confirming))
	}
	return p, true
}

func (u *update) wakeAt(t time.Time) {
	if u.d.Next.IsZero() || t.Before(u.d.Next) {
		u.d.Next = t
	}
}

func state(was, wanted *v1.Pod) rollouts.State {
	if manifest.SameRun(was, wanted) {
		return rollouts.Updated
	}
	return rollouts.Former
}
