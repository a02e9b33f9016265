package changes

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

const jobText = `apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 1
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "i:1"}]}}
`

// TestEditOfJob: the pods of a Job's former run are replaced, and what was edited is said as of any pod.
func TestEditOfJob(t *testing.T) {
	t.Parallel()
	desired := func(text string, h workload.Recorded) manifest.Desired {
		loaded, err := manifest.Load([]byte(text), manifest.LoadOptions{
			Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/m/work"}, NodeName: "n",
		})
		if err != nil {
			t.Fatal(err)
		}
		d := manifest.Desired{Complete: true, Pods: map[pod.Key]*v1.Pod{}, Workloads: loaded.Workloads}
		plan := workload.Expand(loaded.Workloads, h)
		for _, i := range plan.Pods {
			manifest.Annotate(i.Pod, workload.Annotation, i.Workload.String())
			d.Pods[pod.KeyOf(i.Pod)] = i.Pod
		}
		d.Jobs = plan.Jobs
		return d
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := desired(jobText, workload.Recorded{Now: now})
	there := before.Pods
	if len(there) != 1 {
		t.Fatalf("%v", there)
	}
	exists := map[pod.Key]string{}
	for key := range there {
		exists[key] = "Job/work"
	}
	after := desired(strings.Replace(jobText, "i:1", "i:2", 1), workload.Recorded{Now: now.Add(time.Hour), Histories: before.Histories, Exists: exists})
	all := Of(after, there)
	if len(all) != 1 || all[0].Action != Replace || !all[0].NewRun || all[0].Origin.Path != "/m/work" {
		t.Fatalf("%+v", all)
	}
	if c := all[0]; fields(c) != "spec.containers[0].image" || c.Edits[0].Old != `"i:1"` || c.Edits[0].New != `"i:2"` {
		t.Errorf("%+v", c.Edits)
	}
	if left := OfDesired(all, after); !slices.EqualFunc(left, all, func(a, b Change) bool { return a.Key == b.Key }) {
		t.Errorf("%+v", left)
	}
}
