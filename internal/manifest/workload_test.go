package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

// workloadText is a workload whose pods have the image i:1, with more lines of its spec.
func workloadText(kind, name string, more ...string) string {
	text := fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: %s}\nspec:\n  selector: {matchLabels: {app: %[2]s}}\n", kind, name) +
		fmt.Sprintf("  template:\n    metadata: {labels: {app: %s}}\n    spec: {containers: [{name: c, image: 'i:1'}]}\n", name)
	for _, line := range more {
		text += "  " + line + "\n"
	}
	return text
}

// merged merges files, by their paths, of one source.
func merged(t *testing.T, recorded workload.Recorded, files map[string]string) Desired {
	t.Helper()
	s := Sources{Order: []string{"/m"}, Last: map[string]Snapshot{}, Recorded: recorded}
	snap := Snapshot{Source: "/m"}
	for path, text := range files {
		loaded, err := Load([]byte(text), options(path))
		if err != nil {
			t.Fatal(err)
		}
		snap.Pods = append(snap.Pods, loaded.Pods...)
		snap.Workloads = append(snap.Workloads, loaded.Workloads...)
		snap.Objects = append(snap.Objects, loaded.Objects...)
	}
	s.Last["/m"] = snap
	return Merge(s)
}

func podNames(d Desired) string {
	var names []string
	for key := range d.Pods {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestPodsOfWorkloads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text, want string
	}{
		{"a Deployment without replicas", workloadText("Deployment", "web"), "web-0-node1"},
		{"replicas", workloadText("Deployment", "web", "replicas: 3"), "web-0-node1 web-1-node1 web-2-node1"},
		{"none", workloadText("Deployment", "web", "replicas: 0"), ""},
		{"a ReplicaSet", workloadText("ReplicaSet", "web", "replicas: 2"), "web-0-node1 web-1-node1"},
		{"a StatefulSet", workloadText("StatefulSet", "db", "replicas: 2"), "db-0-node1 db-1-node1"},
		{"ordinals", workloadText("StatefulSet", "db", "replicas: 2", "ordinals: {start: 5}"), "db-5-node1 db-6-node1"},
		{"a DaemonSet", workloadText("DaemonSet", "agent"), "agent-node1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := merged(t, workload.Recorded{}, map[string]string{"/m/a.yaml": c.text})
			if got := podNames(d); got != c.want || len(d.Problems) > 0 {
				t.Errorf("got %q, want %q; problems %v", got, c.want, d.Problems)
			}
			uids := map[string]bool{}
			for _, p := range d.Pods {
				uids[string(p.UID)] = true
				if p.Annotations[AnnotationHash] != string(p.UID) || OriginOf(p).Path != "/m/a.yaml" || p.Spec.NodeName != "node1" ||
					p.Spec.RestartPolicy != v1.RestartPolicyAlways || len(p.Spec.Tolerations) != 1 {
					t.Errorf("%+v", p)
				}
				if of, ok := workload.Of(p); !ok || of != d.Workloads[0].ID {
					t.Errorf("%s is of %v", p.Name, of)
				}
			}
			if len(uids) != len(d.Pods) {
				t.Errorf("UIDs %v", uids)
			}
		})
	}
}

// TestIdentityOfWorkloadPods: a number of replicas, or what does not reach the pods, changes no UID; an
// edit of the template changes all. The pod of a DaemonSet has the UID of a Pod with the same content.
func TestIdentityOfWorkloadPods(t *testing.T) {
	t.Parallel()
	uid := func(text, name string) pod.UID {
		t.Helper()
		p := merged(t, workload.Recorded{}, map[string]string{"/m/a.yaml": text}).Pods[pod.Key{Namespace: "default", Name: name + "-node1"}]
		if p == nil {
			t.Fatalf("no pod %s of\n%s", name, text)
		}
		return p.UID
	}
	two := uid(workloadText("Deployment", "web", "replicas: 2"), "web-1")
	for name, same := range map[string]string{
		"more replicas": workloadText("Deployment", "web", "replicas: 5"),
		"a strategy":    workloadText("Deployment", "web", "replicas: 2", "strategy: {type: Recreate}"),
		"a ReplicaSet":  workloadText("ReplicaSet", "web", "replicas: 2"),
		"a label":       strings.Replace(workloadText("Deployment", "web", "replicas: 2"), "{name: web}", "{name: web, labels: {a: b}}", 1),
	} {
		if got := uid(same, "web-1"); got != two {
			t.Errorf("%s: %s, not %s", name, got, two)
		}
	}
	if got := uid(strings.Replace(workloadText("Deployment", "web", "replicas: 2"), "i:1", "i:2", 1), "web-1"); got == two {
		t.Error("another image has the same UID")
	}
	sole := "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\nspec: {containers: [{name: c, image: 'i:1'}]}\n"
	if a, b := uid(workloadText("DaemonSet", "web"), "web"), uid(sole, "web"); a != b {
		t.Errorf("of a DaemonSet %s, of a Pod %s", a, b)
	}
	set := func(more ...string) pod.UID { return uid(workloadText("StatefulSet", "db", more...), "db-0") }
	const claims = "volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]"
	if set() == set("serviceName: db") || set() == set(claims) {
		t.Error("a service name, or a claim, changes no UID")
	}
}

// TestStatefulSet: each pod has its name, host name, claims and predecessor.
func TestStatefulSet(t *testing.T) {
	t.Parallel()
	text := workloadText("StatefulSet", "db", "replicas: 2", "serviceName: dbs",
		"volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]")
	text = strings.Replace(text, "image: 'i:1'}", "image: 'i:1', volumeMounts: [{name: data, mountPath: /data}]}", 1)
	d := merged(t, workload.Recorded{}, map[string]string{"/m/a.yaml": text})
	for i, after := range []string{"", "db-0"} {
		name := fmt.Sprint("db-", i)
		p := d.Pods[pod.Key{Namespace: "default", Name: name + "-node1"}]
		if p == nil || p.Spec.Hostname != name || p.Spec.Subdomain != "dbs" || p.Labels["apps.kubernetes.io/pod-index"] != fmt.Sprint(i) ||
			p.Labels["statefulset.kubernetes.io/pod-name"] != name || p.Annotations[pod.AnnotationAfter] != after ||
			p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-"+name {
			t.Errorf("%d: %+v", i, p)
		}
	}
	parallel := merged(t, workload.Recorded{}, map[string]string{"/m/a.yaml": text + "  podManagementPolicy: Parallel\n"})
	if p := parallel.Pods[pod.Key{Namespace: "default", Name: "db-1-node1"}]; p.Annotations[pod.AnnotationAfter] != "" {
		t.Errorf("%+v", p.Annotations)
	}
	if p := d.Workloads[0].Object.(*appsv1.StatefulSet).Spec.Template.Spec; p.RestartPolicy != v1.RestartPolicyAlways {
		t.Errorf("the object's template has no defaults: %+v", p)
	}
}

// TestRollingStatefulSet: one pod at a time is replaced, also if the manifest has no more than the type of the strategy,
// for which Kubernetes has no defaults.
func TestRollingStatefulSet(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]int{
		"minReadySeconds: 0":                                                                1,
		"updateStrategy: {type: RollingUpdate}":                                             1,
		"updateStrategy: {rollingUpdate: {partition: 0}}":                                   1,
		"updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}":              1,
		"updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}":         2,
		"updateStrategy: {type: RollingUpdate, rollingUpdate: null}\n  minReadySeconds: 30": 1,
		"updateStrategy: {type: OnDelete}":                                                  0,
	} {
		d := merged(t, workload.Recorded{}, map[string]string{"/m/a.yaml": workloadText("StatefulSet", "db", "replicas: 3", strategy)})
		got, rolling := d.Workloads[0].Rolling()
		if rolling != (want > 0) || got.Surge != 0 || got.Unavailable != want {
			t.Errorf("%s: %+v, %v; want %d at a time", strategy, got, rolling, want)
		}
	}
	set := &appsv1.StatefulSet{}
	set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
	if _, unavailable := workload.RollingUpdate(set); unavailable == nil || unavailable.IntValue() != 1 {
		t.Errorf("without maxUnavailable: %v", unavailable)
	}
}

// TestWorkloadsTwice: what is defined twice is a problem, whichever way it is.
func TestWorkloadsTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, a, b, pods, problem string
	}{
		{"one workload in two files", workloadText("Deployment", "web"), workloadText("Deployment", "web", "replicas: 2"), "web-0-node1",
			"/m/b.yaml: Deployment default/web is also in /m/a.yaml, which is used"},
		{"two kinds of one name", workloadText("Deployment", "web"), workloadText("StatefulSet", "web", "replicas: 2"), "web-0-node1 web-1-node1",
			"/m/b.yaml: pod default/web-0-node1 is also in /m/a.yaml, which is used"},
		{"a pod of that name", podText("web-0", "i:1"), workloadText("Deployment", "web"), "web-0-node1",
			"/m/b.yaml: pod default/web-0-node1 is also in /m/a.yaml, which is used"},
		{"a DaemonSet and a pod", podText("web", "i:1"), workloadText("DaemonSet", "web"), "web-node1",
			"/m/b.yaml: pod default/web-node1 is also in /m/a.yaml, which is used"},
		{"a DaemonSet and a Deployment", workloadText("Deployment", "web"), workloadText("DaemonSet", "web"), "web-0-node1 web-node1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := merged(t, workload.Recorded{}, map[string]string{"/m/a.yaml": c.a, "/m/b.yaml": c.b})
			var problems []string
			for _, p := range d.Problems {
				problems = append(problems, p.Err.Error())
			}
			if got := podNames(d); got != c.pods || strings.Join(problems, "\n") != c.problem {
				t.Errorf("pods %q, problems %q", got, problems)
			}
		})
	}
}

// TestTryOfAnotherPodsName: a try of a Job whose name another pod has gets the next name.
func TestTryOfAnotherPodsName(t *testing.T) {
	t.Parallel()
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: web}\nspec:\n  template:\n" +
		"    spec: {restartPolicy: Never, containers: [{name: c, image: 'i:1'}]}\n"
	files := map[string]string{"/m/a.yaml": job + "---\n" + podText("web-1", "i:1")}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first := merged(t, workload.Recorded{Now: now}, files)
	if got := podNames(first); got != "web-0-node1 web-1-node1" || len(first.Problems) > 0 {
		t.Fatalf("pods %q, problems %v", got, first.Problems)
	}
	key := pod.Key{Namespace: "default", Name: "web-0-node1"}
	failed := first.Pods[key].DeepCopy()
	failed.Status.Phase = v1.PodFailed
	d := first
	for range 2 { // the failure is seen, and the back-off has passed
		now = now.Add(time.Hour)
		d = merged(t, workload.Recorded{
			Histories: workload.Histories{Jobs: d.Jobs}, Exists: map[pod.Key]string{key: "Job/web"},
			Pods: map[pod.Key]jobs.Observed{key: {Run: workload.RunOf(failed), Pod: failed, Ended: true}}, Now: now,
		}, files)
	}
	if got := podNames(d); got != "web-0-node1 web-1-node1 web-2-node1" || len(d.Problems) > 0 {
		t.Errorf("pods %q, problems %v", got, d.Problems)
	}
	if _, of := workload.Of(d.Pods[pod.Key{Namespace: "default", Name: "web-1-node1"}]); of {
		t.Error("the Job has the other pod")
	}
}

// TestStopInOrder: of the pods of a StatefulSet that are too many the last one ends first; without the
// set, all end together.
func TestStopInOrder(t *testing.T) {
	t.Parallel()
	key := func(i int) pod.Key { return pod.Key{Namespace: "default", Name: fmt.Sprintf("db-%d-node1", i)} }
	exist := func(owner string, indexes ...int) workload.Recorded {
		all := map[pod.Key]string{}
		for _, i := range indexes {
			all[key(i)] = owner
		}
		return workload.Recorded{Exists: all}
	}
	one := workloadText("StatefulSet", "db", "replicas: 1")
	for _, c := range []struct {
		name, text string
		recorded   workload.Recorded
		retained   []int
	}{
		{"scaled down", one, exist("StatefulSet/db", 0, 1, 2, 10), []int{1, 2}},
		{"the last is gone", one, exist("StatefulSet/db", 0, 1, 2), []int{1}},
		{"the last but one", one, exist("StatefulSet/db", 0, 1), nil},
		{"to none", workloadText("StatefulSet", "db", "replicas: 0"), exist("StatefulSet/db", 0, 1), []int{0}},
		{"at once", workloadText("StatefulSet", "db", "podManagementPolicy: Parallel"), exist("StatefulSet/db", 0, 1, 2), nil},
		{"a Deployment", workloadText("Deployment", "db"), exist("Deployment/db", 0, 1, 2), nil},
		{"of another", one, exist("StatefulSet/other", 0, 1, 2), nil},
		{"removed", podText("web", "i:1"), exist("StatefulSet/db", 0, 1, 2), nil},
		{"ordinals", workloadText("StatefulSet", "db", "replicas: 1", "ordinals: {start: 2}"), exist("StatefulSet/db", 0, 1, 2), []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := merged(t, c.recorded, map[string]string{"/m/a.yaml": c.text})
			var retained []int
			for i := range 11 {
				p := &v1.Pod{}
				p.Namespace, p.Name = "default", key(i).Name
				if d.Pods[key(i)] == nil && d.Keeps(p) {
					retained = append(retained, i)
				}
			}
			if !slices.Equal(retained, c.retained) {
				t.Errorf("retained %v, want %v", retained, c.retained)
			}
		})
	}
}

// TestBadWorkloadKeepsItsPods: a workload that turns bad, and moves to another file, stops none of its pods.
func TestBadWorkloadKeepsItsPods(t *testing.T) {
	t.Parallel()
	good := merged(t, workload.Recorded{}, map[string]string{"/m/a.yaml": workloadText("Deployment", "web", "replicas: 2")})
	_, err := Load([]byte(strings.Replace(workloadText("Deployment", "web", "replicas: 2"), "image", "imag", 1)), options("/m/b.yaml"))
	d := Desired{Complete: true, Problems: Problems(Origin{SourceFile, "/m/b.yaml"}, false, err)}
	for _, p := range good.Pods {
		if !d.Keeps(p) {
			t.Errorf("%s is removed", p.Name)
		}
		if got := d.PodProblems().Of(p); !strings.Contains(got, "/m/b.yaml:8: spec.template.spec.containers[0].imag: unknown field") {
			t.Errorf("%s: problems %q", p.Name, got)
		}
	}
	other := merged(t, workload.Recorded{}, map[string]string{"/m/a.yaml": workloadText("Deployment", "other")})
	for _, p := range other.Pods {
		if d.Keeps(p) {
			t.Errorf("%s is retained", p.Name)
		}
	}
}

// TestBadCronJob: while the manifest of a CronJob cannot be used, what is recorded of it and of its Jobs stays. When it
// is removed, that goes, once its pods are gone.
func TestBadCronJob(t *testing.T) {
	t.Parallel()
	id := func(kind workload.Kind, name string) workload.ID {
		return workload.ID{Kind: kind, Key: pod.Key{Namespace: "default", Name: name}}
	}
	cron, made := id(workload.CronJob, "c"), id(workload.Job, "c-29539325")
	recorded := workload.Recorded{Histories: workload.Histories{
		CronJobs: map[workload.ID]*cronjobs.History{cron: {UID: "u", Jobs: []cronjobs.Job{{Name: made.Key.Name}}}},
		Jobs:     map[workload.ID]*jobs.History{made: {Run: "1"}},
	}}
	merge := func(s Snapshot) Desired {
		s.Source = "/m"
		return Merge(Sources{Order: []string{"/m"}, Last: map[string]Snapshot{"/m": s}, Recorded: recorded})
	}
	_, err := Load([]byte("apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec: {schedule: x}\n"), options("/m/c.yaml"))
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	bad := Snapshot{Problems: []Problem{{Origin: Origin{Source: SourceFile, Path: "/m/c.yaml"}, Key: invalid.Errors[0].Key, Err: err}}}
	if d := merge(bad); d.CronJobs[cron] == nil || d.Jobs[made] == nil {
		t.Errorf("while it is bad: %+v", d.Histories)
	}
	if d := merge(Snapshot{}); len(d.CronJobs)+len(d.Jobs) > 0 {
		t.Errorf("removed: %+v", d.Histories)
	}
	recorded.Exists = map[pod.Key]string{{Namespace: "default", Name: "c-29539325-0-node1"}: made.String()}
	if d := merge(Snapshot{}); d.CronJobs[cron] == nil || d.Jobs[made] == nil {
		t.Errorf("while its pods end: %+v", d.Histories)
	}
}

// TestJobBesideItsName: the pods of a Job get names that no other pod has, whatever is in the same file or another.
func TestJobBesideItsName(t *testing.T) {
	t.Parallel()
	job := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: db}\nspec:\n  template:\n" +
		"    spec: {restartPolicy: Never, containers: [{name: c, image: 'i:1'}]}\n"
	for name, files := range map[string]map[string]string{
		"one file":  {"/m/a.yaml": workloadText("Deployment", "db", "replicas: 2") + "---\n" + job},
		"reversed":  {"/m/a.yaml": job + "---\n" + workloadText("StatefulSet", "db", "replicas: 2", "serviceName: s")},
		"two files": {"/m/a.yaml": job, "/m/b.yaml": workloadText("Deployment", "db", "replicas: 2")},
	} {
		d := merged(t, workload.Recorded{}, files)
		if got := podNames(d); got != "db-0-node1 db-1-node1 db-2-node1" || len(d.Problems) > 0 {
			t.Errorf("%s: pods %q, problems %v", name, got, d.Problems)
		}
	}
	var invalid *InvalidError
	if _, err := Load([]byte(job+"---\n"+job), options("/m/a.yaml")); !errors.As(err, &invalid) ||
		invalid.Errors[0].Message != `Duplicate value: "db": is given twice` {
		t.Errorf("twice: %v", err)
	}
}

// TestManyCronJobs: those without pods count too, since each is recorded.
func TestManyCronJobs(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range workload.MaxReplicas + 1 {
		fmt.Fprintf(&text, "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c%d}\nspec:\n  schedule: '* * * * *'\n"+
			"  jobTemplate: {spec: {parallelism: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'i:1'}]}}}}\n", i)
	}
	if _, err := Load([]byte(text.String()), options("/m/a.yaml")); err == nil || !strings.Contains(err.Error(), "at most 1000 pods") {
		t.Errorf("%v", err)
	}
}

// TestNamedVolumes: what names a PersistentVolume is kept; the template of several claims cannot.
func TestNamedVolumes(t *testing.T) {
	t.Parallel()
	const spec = "{accessModes: [ReadWriteOnce], volumeName: v, resources: {requests: {storage: 1Gi}}}"
	const claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: "
	loaded, err := Load([]byte(claim+spec), options("a.yaml"))
	if err != nil || len(loaded.Objects) != 1 || len(loaded.Warnings) != 0 || loaded.Objects[0].Claim.Spec.VolumeName != "v" {
		t.Errorf("%+v, %v", loaded, err)
	}
	set := workloadText("StatefulSet", "db", "volumeClaimTemplates: [{metadata: {name: data}, spec: "+spec+"}]")
	loaded, err = Load([]byte(set), options("a.yaml"))
	if err != nil || len(loaded.Warnings) != 1 || loaded.Warnings[0].Field != "spec.volumeClaimTemplates[0].spec.volumeName" {
		t.Errorf("a template: %+v, %v", loaded.Warnings, err)
	}
	volume := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\n" +
		"spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: h}}\n---\n"
	d := merge(said(t, "/f", volume+claim+spec))
	if d.Objects.Volumes["v"] == nil || d.Objects.Claims[pod.Key{Namespace: "default", Name: "data"}] == nil {
		t.Errorf("%+v", d.Objects)
	}
	p := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "a", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}}}
	p.Namespace = "default"
	if got := d.MissingVolumes(p); len(got) != 0 {
		t.Errorf("missing: %+v", got)
	}
	secret := strings.Replace(volume, "volumeHandle: h", "volumeHandle: h, nodeStageSecretRef: {name: s, namespace: ns}", 1)
	if got := merge(said(t, "/f", secret+claim+spec)).MissingVolumes(p); len(got) != 1 || got[0] != (Ref{Kind: "Secret", Name: "s"}) {
		t.Errorf("missing: %+v", got)
	}
	if got := merge(said(t, "/f", claim+spec)).MissingVolumes(p); len(got) != 1 || got[0] != (Ref{Kind: "PersistentVolume", Name: "v"}) {
		t.Errorf("missing: %+v", got)
	}
}
