package main

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// base is a workload with most of its fields set.
type base struct {
	kind string
	spec reflect.Type
	text string
	// template is the path of the pod template.
	template string
}

// ofKind returns the base of a kind. fields are those of its spec that other kinds do not have.
func ofKind[Spec any](kind, fields string) base {
	return base{kind, reflect.TypeFor[Spec](), `{"apiVersion":"apps/v1","kind":"` + kind + `","metadata":{"name":"w"},
"spec":{"minReadySeconds":1,` + fields + `
 "selector":{"matchLabels":{"app":"w"},"matchExpressions":[{"key":"app","operator":"Exists"}]},
 "template":{"metadata":{"labels":{"app":"w"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, "spec.template"}
}

func workloadBases() []base {
	return []base{
		ofKind[appsv1.DeploymentSpec]("Deployment", `"replicas":2,"progressDeadlineSeconds":600,"revisionHistoryLimit":1,
 "strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":"50%"}},`),
		ofKind[appsv1.ReplicaSetSpec]("ReplicaSet", `"replicas":2,`),
		ofKind[appsv1.DaemonSetSpec]("DaemonSet", `"revisionHistoryLimit":1,
 "updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}},`),
		ofKind[appsv1.StatefulSetSpec]("StatefulSet", `"replicas":2,"revisionHistoryLimit":1,"serviceName":"s",
 "podManagementPolicy":"Parallel","persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"},
 "updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}},"ordinals":{"start":1},
 "volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],
  "resources":{"requests":{"storage":"1Gi"}}}}],`),
		{"Job", reflect.TypeFor[batchv1.JobSpec](), `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"w"},
"spec":{"completions":3,"parallelism":2,"completionMode":"Indexed","backoffLimitPerIndex":1,"maxFailedIndexes":2,
 "activeDeadlineSeconds":600,"ttlSecondsAfterFinished":60,"suspend":false,"podReplacementPolicy":"Failed",
 "successPolicy":{"rules":[{"succeededIndexes":"0,1-2","succeededCount":1}]},
 "podFailurePolicy":{"rules":[{"action":"FailIndex","onExitCodes":{"containerName":"c","operator":"In","values":[7]}},
  {"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget","status":"True"}]}]},
 "template":{"metadata":{"labels":{"app":"w"}},
  "spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, "spec.template"},
		{"CronJob", reflect.TypeFor[batchv1.CronJobSpec](), `{"apiVersion":"batch/v1","kind":"CronJob",
"metadata":{"name":"w"},"spec":{"schedule":"30 2 * * 1-5","timeZone":"Europe/Berlin","startingDeadlineSeconds":60,
 "concurrencyPolicy":"Forbid","suspend":false,"successfulJobsHistoryLimit":3,"failedJobsHistoryLimit":1,
 "jobTemplate":{"metadata":{"labels":{"app":"w"}},"spec":{"completions":3,"parallelism":2,"backoffLimit":2,
  "template":{"metadata":{"labels":{"app":"w"}},
   "spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`, "spec.jobTemplate.spec.template"},
	}
}

// workloads returns the bases, and manifests in which one field of a workload, but for those of its
// pods, has an edge value.
func workloads() []manifest {
	var all []manifest
	for _, b := range workloadBases() {
		all = append(all, manifest{Name: b.kind, Data: parse(b.text).bytes()})
		tried := []field{
			{parsePath("metadata.name"), reflect.TypeFor[string]()},
			{parsePath("metadata.namespace"), reflect.TypeFor[string]()},
			{parsePath("metadata.labels"), reflect.TypeFor[map[string]string]()},
			{parsePath("metadata.annotations"), reflect.TypeFor[map[string]string]()},
			{parsePath(b.template + ".metadata"), reflect.TypeFor[metav1.ObjectMeta]()},
			{parsePath(b.template + ".metadata.name"), reflect.TypeFor[string]()},
			{parsePath(b.template + ".metadata.labels"), reflect.TypeFor[map[string]string]()},
			{parsePath(b.template + ".metadata.annotations"), reflect.TypeFor[map[string]string]()},
			{parsePath(b.template + ".spec.restartPolicy"), reflect.TypeFor[string]()},
			{parsePath(b.template + ".spec.activeDeadlineSeconds"), reflect.TypeFor[int64]()},
			{parsePath(b.template + ".spec.nodeName"), reflect.TypeFor[string]()},
		}
		for _, f := range below(b.spec, []any{"spec"}, 6) {
			if path := plain(f.path); path != b.template && !within(path, b.template) {
				tried = append(tried, f)
			}
		}
		for _, f := range tried {
			for _, value := range append(edgeValues(f.t), special[b.kind+"."+plain(f.path)]...) {
				one := parse(b.text)
				if one.set(f.path, value) {
					name := b.kind + " " + written(f.path) + " = " + short(value)
					all = append(all, manifest{Name: name, Data: one.bytes()})
				}
			}
		}
	}
	return all
}
