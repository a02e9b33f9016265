package support

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/decode"
)

// workloadTypes are the types of workloads, and those of claims and volumes, in the order of the documentation.
var workloadTypes = []reflect.Type{
	reflect.TypeFor[appsv1.Deployment](),
	reflect.TypeFor[appsv1.ReplicaSet](),
	reflect.TypeFor[appsv1.StatefulSet](),
	reflect.TypeFor[appsv1.DaemonSet](),
	reflect.TypeFor[batchv1.Job](),
	reflect.TypeFor[batchv1.CronJob](),
	reflect.TypeFor[v1.PersistentVolumeClaim](),
	reflect.TypeFor[v1.PersistentVolume](),
}

// What holds for fields of several kinds.
const (
	noHistory  = "has no effect: podrun retains no old versions of a workload"
	likeAPod   = "as a Pod; of its metadata only labels and annotations count"
	isChecked  = "must match the labels of the template; has no other effect"
	manyPods   = "1000 at most, of all workloads of a manifest together; more than 1 not with a hostPort or hostNetwork ports"
	onlyStatus = "counts for the status only"
	noVolumes  = "has no effect: a claim is a directory on this machine"
)

var (
	isPaused   = only("podrun applies each edit", "false")
	isRetain   = only("podrun volumes rm removes a claim", "Retain")
	hasWanted  = yes(manyPods)
	noOnDelete = ignored("OnDelete has no effect: an edit replaces the pods all at once", "RollingUpdate")
)

// workloadTable continues table with the types of workloads.
var workloadTable = map[string]map[string]*rule{
	"Deployment":  workload,
	"ReplicaSet":  workload,
	"StatefulSet": workload,
	"DaemonSet":   workload,
	"Job":         workload,
	"CronJob":     workload,
	"DeploymentSpec": {
		"replicas": hasWanted, "selector": yes(isChecked), "template": yes(likeAPod),
		"strategy": yes(""), "minReadySeconds": yes(""), "revisionHistoryLimit": yes(noHistory),
		"paused": isPaused, "progressDeadlineSeconds": yes("after what time an edit is rolled back, with podrun.io/rollback"),
	},
	"DeploymentStrategy": {
		"type":          yes("what cannot run twice at a time has no pod beyond the replicas: see docs/workloads.md"),
		"rollingUpdate": yes(""),
	},
	"RollingUpdateDeployment": {"maxSurge": yes(""), "maxUnavailable": yes("")},
	"ReplicaSetSpec": {
		"replicas": hasWanted, "selector": yes(isChecked), "template": yes(likeAPod),
		"minReadySeconds": yes(onlyStatus),
	},
	"StatefulSetSpec": {
		"replicas": hasWanted, "selector": yes(isChecked), "template": yes(likeAPod),
		"volumeClaimTemplates": yes("a claim NAME-POD for each pod, which outlives it"),
		"serviceName":          yes("the subdomain of the pods"),
		"podManagementPolicy": yes("with OrderedReady a pod starts when the one before it is ready, and of pods that " +
			"are too many the last one ends first; when all end, they end together"),
		"updateStrategy": yes(""), "revisionHistoryLimit": yes(noHistory),
		"minReadySeconds":                      yes("counts for updates, not for the order of the first start"),
		"persistentVolumeClaimRetentionPolicy": yes(""), "ordinals": yes(""),
	},
	"StatefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": isRetain, "whenScaled": isRetain},
	"StatefulSetOrdinals":                             {"start": yes("")},
	"StatefulSetUpdateStrategy":                       {"type": noOnDelete, "rollingUpdate": yes("")},
	"RollingUpdateStatefulSetStrategy":                {"partition": ignored("has no effect: all pods get the template", "0"), "maxUnavailable": yes("")},
	"DaemonSetSpec": {
		"selector": yes(isChecked), "template": yes(likeAPod), "updateStrategy": yes(""),
		"minReadySeconds": yes(""), "revisionHistoryLimit": yes(noHistory),
	},
	"DaemonSetUpdateStrategy": {"type": noOnDelete, "rollingUpdate": yes("")},
	"RollingUpdateDaemonSet": {
		"maxSurge":       yes("1 starts another pod beside the one of this machine, which it replaces when it is ready"),
		"maxUnavailable": yes(""),
	},
	"JobSpec": {
		"parallelism": yes(manyPods), "completions": yes(""), "activeDeadlineSeconds": yes(""),
		"podFailurePolicy": yes("DisruptionTarget is what a pod has that a shutdown of the machine interrupts"), "successPolicy": yes(""),
		"backoffLimit": yes(""), "backoffLimitPerIndex": yes(""), "maxFailedIndexes": yes(""),
		"selector":       never("Kubernetes sets it; leave it out"),
		"manualSelector": never("the pods of a Job are found by its name"),
		"template":       yes(likeAPod), "completionMode": yes(""), "suspend": yes(""),
		"ttlSecondsAfterFinished": yes("the pods and their logs are removed; that the Job has finished is not forgotten"),
		"podReplacementPolicy":    yes("a pod always ends before another one takes its place, as with Failed"),
		"managedBy":               never("podrun alone runs Jobs here"),
		"scheduling":              never("there is no scheduler that would place pods together"),
	},
	"CronJobSpec": {
		"schedule":                yes("a time of it runs at most once"),
		"timeZone":                yes("by default that of the machine"),
		"startingDeadlineSeconds": yes(""), "concurrencyPolicy": yes(""), "suspend": yes(""),
		"jobTemplate":                yes("as a Job; of its metadata only labels and annotations count"),
		"successfulJobsHistoryLimit": yes("1000 at most"), "failedJobsHistoryLimit": yes("1000 at most"),
	},
	"JobTemplateSpec":                        {"metadata": yes(""), "spec": yes("")},
	"PodFailurePolicy":                       {"rules": yes("")},
	"PodFailurePolicyRule":                   {"action": yes(""), "onExitCodes": yes(""), "onPodConditions": yes("")},
	"PodFailurePolicyOnExitCodesRequirement": {"containerName": yes(""), "operator": yes(""), "values": yes("")},
	"PodFailurePolicyOnPodConditionsPattern": {"type": yes(""), "status": yes("")},
	"SuccessPolicy":                          {"rules": yes("")},
	"SuccessPolicyRule":                      {"succeededIndexes": yes(""), "succeededCount": yes("")},
	"PodTemplateSpec":                        {"metadata": yes(""), "spec": yes("")},
	"PersistentVolumeClaim": {
		"kind": yes(""), "apiVersion": yes(""), "metadata": yes(""), "spec": yes(""), "status": ignored(ofPodrun),
	},
	"PersistentVolumeClaimSpec": {
		"accessModes":               yes("of a claim that names a PersistentVolume; all pods share a directory"),
		"selector":                  ignored(noVolumes),
		"resources":                 yes("at most what a PersistentVolume has; the size of a directory is not limited"),
		"volumeName":                yes("the PersistentVolume of that name; the claim is no directory then"),
		"storageClassName":          yes("a StorageClass of a CSI driver makes the volume; else it is a directory"),
		"volumeMode":                yes("must be its PersistentVolume's; a directory has Filesystem"),
		"dataSource":                never("nothing would fill the claim; fill its directory"),
		"dataSourceRef":             never("nothing would fill the claim; fill its directory"),
		"volumeAttributesClassName": ignored(noVolumes),
	},
	"LabelSelector":              {"matchLabels": yes(""), "matchExpressions": yes("")},
	"LabelSelectorRequirement":   {"key": yes(""), "operator": yes(""), "values": yes("")},
	"VolumeResourceRequirements": {"limits": yes(""), "requests": yes("")},
}

var workload = map[string]*rule{
	"kind": yes(""), "apiVersion": yes(""), "metadata": yes(""), "spec": yes(""), "status": ignored(ofPodrun),
}

// fieldsOf returns the rules of the fields of a type; nil if it has none.
func fieldsOf(t reflect.Type) map[string]*rule {
	for _, of := range []map[string]map[string]*rule{table, volumeTable} {
		if fields, ok := of[t.Name()]; ok {
			return fields
		}
	}
	return workloadTable[t.Name()]
}

// CheckWorkload does for a workload of type t, or a PersistentVolumeClaim, what Check does for a Pod.
func CheckWorkload(value any, t reflect.Type) (errs, warnings []decode.Error) {
	c := checker{}
	c.walk(value, t, "")
	object, _ := value.(map[string]any)
	path := "spec.template."
	spec, _ := object["spec"].(map[string]any)
	if t == reflect.TypeFor[batchv1.CronJob]() {
		path = "spec.jobTemplate." + path
	}
	c.outerAnnotations(object, outer{own: ownAnnotations[t.Name()], template: path})
	c.namedVolumes(spec)
	if t == reflect.TypeFor[batchv1.CronJob]() {
		job, _ := spec["jobTemplate"].(map[string]any)
		c.outerAnnotations(job, outer{path: "spec.jobTemplate.", template: path})
		spec, _ = job["spec"].(map[string]any)
	}
	c.annotations(spec["template"], path)
	return c.errs, c.warnings
}

// ofCronJob is the note of the annotation of CronJobs where it is not one's.
const ofCronJob = "it is an annotation of a CronJob, in its own metadata: with the value boot the CronJob runs once in " +
	"each boot, in place of its schedule"

// ownAnnotation is an annotation of a kind of workloads, with its one value.
type ownAnnotation struct{ name, value string }

var ownAnnotations = map[string]ownAnnotation{
	"Job":     {"podrun.io/run-policy", "per-boot"},
	"CronJob": {"podrun.io/schedule", "boot"},
}

// outer is an object around a template.
type outer struct {
	// path precedes the paths of the object's fields, and template those of the template's fields.
	path, template string
	own            ownAnnotation
}

// outerAnnotations warns about the annotations of an object that have an effect on the pods of its template only.
func (c *checker) outerAnnotations(object map[string]any, o outer) {
	meta, _ := object["metadata"].(map[string]any)
	given, _ := meta["annotations"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(given)) {
		path := o.path + "metadata.annotations[" + key + "]"
		if key == o.own.name && key != "" {
			if value, _ := spell(given[key]); value != o.own.value {
				c.fail(path, fmt.Sprintf("Unsupported value: %q: supported values: %q", value, o.own.value))
			}
			continue
		}
		prefix, _, _ := strings.Cut(key, "/")
		r, known := annotations[key]
		if !known {
			r, known = annotations[prefix+"/"]
		}
		switch {
		case known && r.support == Refused && r.note == ofCronJob:
			c.warn(path, r.note)
		case known && r.support != Ignored:
			c.warn(path, "has no effect here; put it into "+o.template+"metadata.annotations")
		}
	}
}

// elsewhere are the fields of workloads below which Entries has them, or those of a Job do.
var elsewhere = []string{"metadata.", "spec.template.", "spec.jobTemplate.", "spec.selector."}

// WorkloadEntries returns an Entry for every field of the kinds of workloads, but for those of their
// metadata and templates, which Entries has.
func WorkloadEntries() []Entry {
	var entries []Entry
	for _, t := range workloadTypes {
		walkType(t, t.Name()+":", func(e Entry) {
			e.Field = strings.Replace(e.Field, ":.", ": ", 1)
			_, field, _ := strings.Cut(e.Field, ": ")
			if !slices.ContainsFunc(elsewhere, func(outer string) bool { return strings.HasPrefix(field, outer) }) {
				entries = append(entries, e)
			}
		})
	}
	return entries
}
