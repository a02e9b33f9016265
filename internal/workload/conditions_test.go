package workload

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload/revisions"
)

// TestAvailable: as many pods may be unavailable as an update may take away; with percentages that come to none, one.
func TestAvailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		surge, unavailable string
		replicas, ready    int32
		want               v1.ConditionStatus
	}{
		{"25%", "25%", 1, 0, v1.ConditionFalse}, {"25%", "25%", 4, 3, v1.ConditionTrue}, {"25%", "25%", 4, 2, v1.ConditionFalse},
		{"0", "20%", 1, 0, v1.ConditionTrue}, {"0", "20%", 3, 1, v1.ConditionFalse},
	} {
		surge, unavailable := intstr.Parse(c.surge), intstr.Parse(c.unavailable)
		d := &appsv1.Deployment{}
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}
		if got := available(d, Summary{Desired: c.replicas, Available: c.ready}, times{}).Status; got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestAvailableSince: the condition Available has changed when the pod that makes the difference did.
func TestAvailableSince(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pods   []*v1.Pod
		status v1.ConditionStatus
		since  time.Time
	}{
		"all are":           {[]*v1.Pod{podAt("web-0", "new", 3, 20), podAt("web-1", "new", 3, 30)}, v1.ConditionTrue, at(35)},
		"one more is":       {[]*v1.Pod{podAt("web-0", "new", 3, 50), podAt("web-1", "new", 3, 20), podAt("web-2", "new", 3, 30)}, v1.ConditionTrue, at(35)},
		"one is not ready":  {[]*v1.Pod{podAt("web-0", "new", 3, 20), podAt("web-1", "new", 40, -1)}, v1.ConditionFalse, at(40)},
		"one is not enough": {[]*v1.Pod{podAt("web-0", "new", 3, 20), podAt("web-1", "new", 3, 97)}, v1.ConditionFalse, at(2)},
		"there are none":    {nil, v1.ConditionFalse, at(2)},
	} {
		d := &appsv1.Deployment{}
		d.Spec.MinReadySeconds = 5
		s := State{Object: d, Desired: 2, Pods: c.pods, Hash: "new", HashOf: hashOf, Seen: at(2), Now: at(100)}
		all := Summarize(s).Conditions
		if len(all) != 1 || all[0].Status != c.status || !all[0].LastTransitionTime.Equal(new(metav1.NewTime(c.since))) ||
			!all[0].LastUpdateTime.Equal(&all[0].LastTransitionTime) {
			t.Errorf("%s: %+v, want %s since %s", name, all, c.status, c.since)
		}
	}
}

// TestProgressing: the condition is that of Kubernetes' deployment controller, as far as it is known, and the same at any
// time.
func TestProgressing(t *testing.T) {
	t.Parallel()
	tried := &revisions.Outcome{}
	healthy := &revisions.Outcome{Result: revisions.Healthy, Ended: at(70)}
	failed := &revisions.Outcome{Result: revisions.Failed, Reason: "why", Ended: at(80)}
	back := &revisions.Outcome{Result: revisions.RolledBack, Reason: "why", Ended: at(90)}
	undone := &revisions.Outcome{Result: revisions.RolledBack, Reason: revisions.Undone, Ended: at(95)}
	old, ready, starting := podAt("web-0", "old", 0, 1), podAt("web-1", "new", 10, 20), podAt("web-0", "new", 30, -1)
	other := podAt("web-1", "old", 0, 1)
	for name, c := range map[string]struct {
		pods    []*v1.Pod
		outcome *revisions.Outcome
		now     int
		reason  string
		// update and transition are the seconds of the times.
		update, transition int
	}{
		"complete":                            {[]*v1.Pod{ready, podAt("web-0", "new", 12, 30)}, nil, 9999, reasonComplete, 30, 5},
		"complete while it is tried":          {[]*v1.Pod{ready, podAt("web-0", "new", 12, 30)}, tried, 9999, reasonComplete, 30, 5},
		"complete, and recorded":              {[]*v1.Pod{ready, podAt("web-0", "new", 12, 30)}, healthy, 9999, reasonComplete, 70, 5},
		"complete after its deadline":         {[]*v1.Pod{ready, podAt("web-0", "new", 12, 30)}, failed, 9999, reasonComplete, 30, 5},
		"a pod is lost later":                 {[]*v1.Pod{ready, starting}, healthy, 9999, reasonComplete, 70, 5},
		"more replicas":                       {[]*v1.Pod{ready}, healthy, 9999, reasonComplete, 70, 5},
		"no pods yet":                         {nil, nil, 9999, reasonUpdated, 5, 5},
		"it is not known whether it ever was": {[]*v1.Pod{ready, starting}, nil, 9999, reasonUpdated, 30, 5},
		"an update":                           {[]*v1.Pod{ready, old}, nil, 120, reasonUpdated, 20, 5},
		"an update that makes no progress":    {[]*v1.Pod{starting, other}, nil, 131, reasonTimedOut, 130, 130},
		"the same, recorded":                  {[]*v1.Pod{starting, other}, tried, 9999, reasonUpdated, 30, 5},
		"back to the one before":              {[]*v1.Pod{starting, other}, healthy, 9999, reasonUpdated, 30, 5},
		"the first one failed":                {[]*v1.Pod{ready, starting}, failed, 9999, reasonTimedOut, 80, 80},
		"rolled back":                         {[]*v1.Pod{old, other}, back, 9999, reasonTimedOut, 90, 90},
		"is going to be rolled back":          {[]*v1.Pod{old, starting}, back, 9999, reasonTimedOut, 90, 90},
		"undone by hand":                      {[]*v1.Pod{old, other}, undone, 9999, reasonComplete, 95, 5},
		"is being undone":                     {[]*v1.Pod{starting, other}, undone, 9999, reasonUpdated, 30, 5},
	} {
		d := &appsv1.Deployment{}
		d.Name, d.Spec.ProgressDeadlineSeconds = "web", new(int32(100))
		s := State{Object: d, Desired: 2, Pods: c.pods, Hash: "new", HashOf: hashOf, Seen: at(5), Outcome: c.outcome, Now: at(c.now)}
		all := Summarize(s).Conditions
		s.Now = at(c.now + 1000)
		later := Summarize(s).Conditions
		got := all[1]
		status := v1.ConditionTrue
		if c.reason == reasonTimedOut {
			status = v1.ConditionFalse
		}
		if got.Type != appsv1.DeploymentProgressing || got.Reason != c.reason || got.Status != status || got.Message == "" ||
			!got.LastUpdateTime.Equal(new(metav1.NewTime(at(c.update)))) || !got.LastTransitionTime.Equal(new(metav1.NewTime(at(c.transition)))) {
			t.Errorf("%s: %+v", name, got)
		}
		if c.now == 9999 && !reflect.DeepEqual(all, later) {
			t.Errorf("%s: %+v, and then %+v", name, all, later)
		}
	}
	d := &appsv1.Deployment{}
	d.Spec.ProgressDeadlineSeconds = new(int32(1<<31 - 1))
	if all := Summarize(State{Object: d, HashOf: hashOf}).Conditions; len(all) != 1 {
		t.Errorf("without a deadline: %+v", all)
	}
}

// TestOutcome: what is recorded of another template says nothing of this one.
func TestOutcome(t *testing.T) {
	t.Parallel()
	id := ID{Kind: Deployment, Key: pod.Key{Namespace: "default", Name: "web"}}
	w := &Workload{ID: id, Template: podAt("web", "new", 0, 0)}
	of := func(hash string) *revisions.Revision {
		return &revisions.Revision{ID: hash, Template: podAt("web", hash, 0, 0)}
	}
	past := []revisions.Outcome{
		{ID: "new", Result: revisions.Healthy, Ended: at(1)}, {ID: "old", Result: revisions.RolledBack, Ended: at(2)},
	}
	for name, c := range map[string]struct {
		history *revisions.History
		want    *revisions.Outcome
	}{
		"not recorded":   {nil, nil},
		"nothing yet":    {&revisions.History{}, nil},
		"healthy":        {&revisions.History{Good: of("new"), Past: past}, &past[0]},
		"long ago":       {&revisions.History{Good: of("new")}, &revisions.Outcome{ID: "new", Result: revisions.Healthy}},
		"of another one": {&revisions.History{Good: of("old")}, &revisions.Outcome{}},
		"with an image that is updated": {
			&revisions.History{Good: of("old"), Updates: map[string]string{}}, &revisions.Outcome{ID: "old", Result: revisions.Healthy},
		},
		"tried":       {&revisions.History{Good: of("old"), Tried: "new", Began: at(3)}, &revisions.Outcome{ID: "new", Began: at(3)}},
		"failed":      {&revisions.History{Tried: "new", Overdue: true}, &revisions.Outcome{ID: "new", Result: revisions.Failed}},
		"rolled back": {&revisions.History{Good: of("new"), RolledBack: "old", Past: past}, &past[1]},
	} {
		recorded := Histories{Revisions: map[ID]*revisions.History{id: c.history}}
		if got := w.Outcome(recorded, hashOf); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
