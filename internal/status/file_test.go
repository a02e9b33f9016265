package status

import (
	"errors"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// A pod that is being terminated is marked once, by the first podrun process that does so, until it
// is wanted again.
func TestLeaving(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	f := NewFiles(dirs)
	key := pod.Key{Namespace: "default", Name: "web"}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: new(int64)}, Status: v1.PodStatus{Phase: v1.PodRunning}}
	*p.Spec.TerminationGracePeriodSeconds = 5
	asked := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	leave := func(f *Files, at time.Time) {
		t.Helper()
		if err := f.Leaving(key, at, nil); err != nil {
			t.Error(err)
		}
	}
	publish := func(f *Files) {
		t.Helper()
		if err := f.Publish(p, true); err != nil {
			t.Error(err)
		}
	}
	want := func(f *Files, over time.Time) {
		t.Helper()
		pods, err := f.Pods()
		if err != nil || len(pods) != 1 || pods[0].Status.Phase != v1.PodRunning || *pods[0].DeletionGracePeriodSeconds != 5 || !pods[0].DeletionTimestamp.Time.Equal(over) {
			t.Errorf("%+v, %v, want it to be over at %s", pods, err, over)
		}
	}

	leave(f, asked) // of which nothing was published
	if pods, err := f.Pods(); err != nil || len(pods) > 0 {
		t.Errorf("%+v, %v", pods, err)
	}
	publish(f)
	leave(f, asked)
	want(f, asked.Add(5*time.Second))
	leave(f, asked.Add(time.Second))
	want(f, asked.Add(5*time.Second))

	publish(f) // wanted again
	if pods, err := f.Pods(); err != nil || len(pods) != 1 || pods[0].DeletionTimestamp != nil {
		t.Errorf("%+v, %v", pods, err)
	}
	// The file of an earlier podrun process is not read: a pod is published before it leaves.
	later := NewFiles(dirs)
	leave(later, asked.Add(time.Hour))
	if pods, err := later.Pods(); err != nil || len(pods) > 0 {
		t.Errorf("%+v, %v", pods, err)
	}
	publish(later)
	leave(later, asked.Add(time.Hour))
	want(later, asked.Add(time.Hour+5*time.Second))
}

// TestTouch: a podrun process that ends records until when its published statuses were current, for
// its own pods only.
func TestTouch(t *testing.T) {
	dirs := layout.Dirs{Run: t.TempDir()}
	files := NewFiles(dirs)
	long := time.Now().Add(-time.Hour)
	for _, name := range []string{"mine", "others", "gone"} {
		p := &v1.Pod{}
		p.Namespace, p.Name = "default", name
		if err := errors.Join(files.Publish(p, true), os.Chtimes(dirs.StatusFiles().Pod(pod.KeyOf(p)), long, long)); err != nil {
			t.Fatal(err)
		}
		if name == "others" {
			if err := files.NotOwned(pod.KeyOf(p), p, &plan.Waiting{Reason: "OwnedByOther"}); err != nil {
				t.Fatal(err)
			}
		}
		if name == "gone" {
			if err := files.Gone(pod.KeyOf(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	files.Touch()
	for name, fresh := range map[string]bool{"mine": true, "others": false} {
		info, err := os.Stat(dirs.StatusFiles().Pod(pod.Key{Namespace: "default", Name: name}))
		if err != nil || info.ModTime().After(long.Add(time.Minute)) != fresh {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
