package status

import (
	"errors"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

// TestTouch: a podrun process that ends records until when its published statuses were current, for
// its own pods only.
func TestTouch(t *testing.T) {
	dirs := layout.Dirs{Run: t.TempDir()}
	files := NewFiles(dirs)
	long := time.Now().Add(-time.Hour)
	for _, name := range []string{"mine", "others", "gone"} {
		p := &v1.Pod{}
		p.Namespace, p.Name = "default", name
		if err := errors.Join(files.Publish(p, time.Now(), true), os.Chtimes(dirs.StatusFiles().Pod(pod.KeyOf(p)), long, long)); err != nil {
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

// TestStatusDoesNotWait: no change of a status waits for a disk.
func TestStatusDoesNotWait(t *testing.T) {
	t.Parallel()
	files, p := NewFiles(layout.Dirs{Run: t.TempDir()}), &v1.Pod{}
	p.Namespace, p.Name = "default", "web"
	if err := test.WithoutSync(t, func() error {
		return errors.Join(
			files.Publish(p, time.Now(), true),
			files.NotOwned(pod.KeyOf(p), p, &plan.Waiting{Reason: "OwnedByOther"}),
		)
	}); err != nil {
		t.Error(err)
	}
}

// TestWorkloadsOfAnEarlierBoot: a file that a loss of power has left incomplete is no file.
func TestWorkloadsOfAnEarlierBoot(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	for _, text := range []string{"", `[{"kind": "Job"`, "\x00\x00"} {
		if err := os.WriteFile(dirs.StatusFiles().Workloads(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := Workloads(dirs); err != nil || len(all) != 0 {
			t.Errorf("of %q: %v, %v", text, all, err)
		}
	}
}
