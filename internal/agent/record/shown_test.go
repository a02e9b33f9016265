package record

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// TestAnOldStatusShowsWhatWasSeen: a status that is published after an action that hung shows the pod as it was before that,
// and not that it is ready still.
func TestAnOldStatusShowsWhatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(nowhere{})
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u"}}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		key := pod.KeyOf(p)
		r.histories[workload.ID{Kind: workload.Pod, Key: key}] = &revisions.History{}
		publish := func(seen time.Time) revisions.Observed {
			if err := r.Publish(p, seen, true); err != nil {
				t.Error(err)
			}
			return r.Recorded().Running[key]
		}
		began := time.Now()
		if o := publish(began); o.Ready != 0 || o.Shown != 0 {
			t.Errorf("at first: %+v", o)
		}
		time.Sleep(20 * time.Second)
		if o := publish(began); o.Ready != 20*time.Second || o.Shown != 0 {
			t.Errorf("after an action that hung: ready for %s, shown for %s", o.Ready, o.Shown)
		}
		if o := publish(time.Now()); o.Shown != 20*time.Second {
			t.Errorf("after an inspection: shown for %s", o.Shown)
		}
	})
}
