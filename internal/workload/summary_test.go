package workload

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUnavailable: a pod beyond the replicas that is not available counts, as in Kubernetes.
func TestUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		summary Summary
		want    int32
	}{
		"all are available":      {Summary{Desired: 2, Current: 2, Available: 2}, 0},
		"some do not exist yet":  {Summary{Desired: 3, Current: 1, Available: 1}, 2},
		"one beyond is starting": {Summary{Desired: 1, Current: 2, Available: 1}, 1},
		"one beyond is the last": {Summary{Desired: 1, Current: 2, Available: 2}, 0},
	} {
		d := &appsv1.Deployment{}
		SetStatus(d, c.summary)
		if got := d.Status.UnavailableReplicas; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// at is a moment, some seconds after all pods began.
func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0) }

// podAt returns a pod of a template, which began at a time and has been ready since another; -1: it is not ready.
func podAt(name, hash string, began, ready int) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Annotations = name, map[string]string{"hash": hash}
	p.Status.StartTime = new(metav1.NewTime(at(began)))
	c := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: metav1.NewTime(at(began))}
	if ready >= 0 {
		c.Status, c.LastTransitionTime = v1.ConditionTrue, metav1.NewTime(at(ready))
	}
	p.Status.Conditions = []v1.PodCondition{c}
	return p
}

func leaving(p *v1.Pod) *v1.Pod {
	p.DeletionTimestamp = new(metav1.NewTime(at(0)))
	return p
}

func hashOf(p *v1.Pod) string { return p.Annotations["hash"] }

// TestStatefulSetStatus: the current pods are those of the former template until none is left.
func TestStatefulSetStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pods                  []*v1.Pod
		current, updated      int32
		revision, revisionNew string
	}{
		"all are new": {
			[]*v1.Pod{podAt("db-0-n", "new", 0, 1), podAt("db-1-n", "new", 0, 1), podAt("db-2-n", "new", 0, 1)}, 3, 3, "db-new", "db-new",
		},
		"one is": {
			[]*v1.Pod{podAt("db-0-n", "old", 0, 1), podAt("db-1-n", "old", 0, 1), podAt("db-2-n", "new", 0, 1)}, 2, 1, "db-old", "db-new",
		},
		"the last former one ends": {
			[]*v1.Pod{leaving(podAt("db-0-n", "old", 0, 1)), podAt("db-1-n", "new", 0, 1)}, 0, 1, "db-old", "db-new",
		},
		"an update that has not ended": {
			[]*v1.Pod{podAt("db-10-n", "mid", 0, 1), podAt("db-9-n", "old", 0, 1), podAt("db-11-n", "new", 0, 1)}, 1, 1, "db-old", "db-new",
		},
		"none": {nil, 0, 0, "db-new", "db-new"},
	} {
		set := &appsv1.StatefulSet{}
		set.Name = "db"
		SetStatus(set, Summarize(State{Object: set, Desired: 3, Pods: c.pods, Hash: "new", HashOf: hashOf, Now: at(60)}))
		s := set.Status
		if s.CurrentReplicas != c.current || s.UpdatedReplicas != c.updated || s.CurrentRevision != c.revision ||
			s.UpdateRevision != c.revisionNew || s.ObservedGeneration != set.Generation || set.Generation != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestDaemonSetStatus: what is counted are nodes, of which there is one, also while it has two pods for an update.
func TestDaemonSetStatus(t *testing.T) {
	t.Parallel()
	former, next := podAt("agent-n", "old", 0, 1), podAt("agent-1-n", "new", 20, 21)
	for name, c := range map[string]struct {
		pods []*v1.Pod
		want appsv1.DaemonSetStatus // of current, ready, available, updated, unavailable
	}{
		"one":                        {[]*v1.Pod{former}, nodes(1, 1, 1, 0, 0)},
		"another one starts":         {[]*v1.Pod{former, podAt("agent-1-n", "new", 20, -1)}, nodes(1, 1, 1, 0, 0)},
		"both serve":                 {[]*v1.Pod{next, former}, nodes(1, 1, 1, 0, 0)},
		"the former one has ended":   {[]*v1.Pod{podAt("agent-n", "new", 10, -1), next}, nodes(1, 1, 1, 1, 0)},
		"the former one is ending":   {[]*v1.Pod{leaving(podAt("agent-n", "old", 0, 1)), next}, nodes(1, 1, 1, 1, 0)},
		"the other one ends at last": {[]*v1.Pod{podAt("agent-n", "new", 30, 31), leaving(podAt("agent-1-n", "new", 20, 21))}, nodes(1, 1, 1, 1, 0)},
		"ready, not for long enough": {[]*v1.Pod{podAt("agent-n", "new", 30, 58)}, nodes(1, 1, 0, 1, 1)},
		"none serves":                {[]*v1.Pod{podAt("agent-n", "old", 0, -1), podAt("agent-1-n", "new", 20, -1)}, nodes(1, 0, 0, 0, 1)},
		"none":                       {nil, nodes(0, 0, 0, 0, 1)},
	} {
		d := &appsv1.DaemonSet{}
		d.Spec.MinReadySeconds = 5
		SetStatus(d, Summarize(State{Object: d, Desired: 1, Pods: c.pods, Hash: "new", HashOf: hashOf, Now: at(60)}))
		if !reflect.DeepEqual(d.Status, c.want) {
			t.Errorf("%s: %+v", name, d.Status)
		}
	}
}

func nodes(current, ready, available, updated, unavailable int32) appsv1.DaemonSetStatus {
	return appsv1.DaemonSetStatus{
		ObservedGeneration: 1, DesiredNumberScheduled: 1, CurrentNumberScheduled: current, NumberReady: ready,
		NumberAvailable: available, UpdatedNumberScheduled: updated, NumberUnavailable: unavailable,
	}
}
