package changes

import (
	"encoding/json"
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

// TestEditOfWorkloads: an edit of a workload that changes no pod is said nevertheless.
func TestEditOfWorkloads(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: NAME}\nspec:\n  schedule: '*/5 * * * *'\n  jobTemplate: {spec: " +
		"{template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'i:1'}]}}}}\n"
	const web = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  minReadySeconds: 1\n  selector: {matchLabels: {a: b}}\n" +
		"  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'i:1'}]}}\n"
	load := func(texts ...string) manifest.Desired {
		loaded, err := manifest.Load([]byte(strings.Join(texts, "---\n")), manifest.LoadOptions{
			Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/m/cron"}, NodeName: "n",
		})
		if err != nil {
			t.Fatal(err)
		}
		return manifest.Desired{Complete: true, Workloads: loaded.Workloads}
	}
	a, b := strings.Replace(text, "NAME", "a", 1), strings.Replace(text, "NAME", "b", 1)
	there := map[workload.ID]json.RawMessage{}
	for _, w := range load(a, b, web).Workloads {
		document, err := json.Marshal(w.Object)
		if err != nil {
			t.Fatal(err)
		}
		there[w.ID] = document
	}
	if all := OfWorkloads(load(a, b, web), there); len(all) != 0 {
		t.Errorf("the same: %+v", all)
	}
	after := load(strings.NewReplacer("*/5", "*/7", "i:1", "i:2").Replace(a), strings.Replace(text, "NAME", "c", 1),
		strings.NewReplacer("minReadySeconds: 1", "minReadySeconds: 30", "i:1", "i:2").Replace(web))
	all := OfWorkloads(after, there)
	var got []string
	for _, c := range all {
		got = append(got, string(c.Action)+" "+c.Kind+" "+c.Key.Name+" "+fields(c))
	}
	want := "update CronJob a spec.jobTemplate.spec.template.spec.containers[0].image,spec.schedule; create CronJob c ; " +
		"update Deployment web spec.minReadySeconds; remove CronJob b "
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("%s\nwant %s", text, want)
	}
	if named := OfDesired(all, after); len(named) != 3 {
		t.Errorf("of the manifests: %+v", named)
	}
	after.Problems = []manifest.Problem{{}}
	if all := OfWorkloads(after, there); len(all) != 3 {
		t.Errorf("with a manifest that cannot be read: %+v", all)
	}
}
