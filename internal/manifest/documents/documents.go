// Package documents has what the kinds of workloads have in common, whatever their Go types are: their
// metadata, template, defaults, validation, and which pods they make. It is pure. It decodes nothing,
// and does not know what the template's pod may have.
//
// Begin reading at New.
package documents

import (
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/manifest/defaults"
	"podrun.io/podrun/internal/manifest/validate/workloads"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// Document is a workload that is decoded into Object.
type Document struct {
	Object runtime.Object
	// Meta and Template are parts of Object.
	Meta     *metav1.ObjectMeta
	Template *v1.PodTemplateSpec
	// Path is the path of Template in Object.
	Path string
}

// New returns an empty document of a kind.
func New(kind workload.Kind) Document {
	const path = "spec.template"
	switch kind {
	case workload.Deployment:
		o := &appsv1.Deployment{}
		return Document{o, &o.ObjectMeta, &o.Spec.Template, path}
	case workload.ReplicaSet:
		o := &appsv1.ReplicaSet{}
		return Document{o, &o.ObjectMeta, &o.Spec.Template, path}
	case workload.StatefulSet:
		o := &appsv1.StatefulSet{}
		return Document{o, &o.ObjectMeta, &o.Spec.Template, path}
	case workload.DaemonSet:
		o := &appsv1.DaemonSet{}
		return Document{o, &o.ObjectMeta, &o.Spec.Template, path}
	case workload.Job:
		o := &batchv1.Job{}
		return Document{o, &o.ObjectMeta, &o.Spec.Template, path}
	case workload.CronJob:
		o := &batchv1.CronJob{}
		return Document{o, &o.ObjectMeta, &o.Spec.JobTemplate.Spec.Template, "spec.jobTemplate." + path}
	}
	panic(fmt.Sprintf("no workload has the kind %q", kind))
}

// Type returns the type of Object.
func (d Document) Type() reflect.Type { return reflect.TypeOf(d.Object).Elem() }

// SetDefaults sets the fields, but for those of the template, that the manifest omits.
func (d Document) SetDefaults() {
	switch o := d.Object.(type) {
	case *appsv1.Deployment:
		defaults.Deployment(o)
	case *appsv1.ReplicaSet:
		defaults.ReplicaSet(o)
	case *appsv1.StatefulSet:
		defaults.StatefulSet(o)
	case *appsv1.DaemonSet:
		defaults.DaemonSet(o)
	case *batchv1.Job:
		defaults.Job(o)
	case *batchv1.CronJob:
		defaults.CronJob(o)
	}
}

// Workload returns the workload, without its template. The document has its defaults.
func (d Document) Workload() *workload.Workload {
	w := &workload.Workload{Object: d.Object, Replicas: 1}
	w.Kind = workload.Kind(d.Object.GetObjectKind().GroupVersionKind().Kind)
	w.Key = pod.Key{Namespace: d.Meta.Namespace, Name: d.Meta.Name}
	switch o := d.Object.(type) {
	case *appsv1.Deployment:
		w.Replicas = int(*o.Spec.Replicas)
	case *appsv1.ReplicaSet:
		w.Replicas = int(*o.Spec.Replicas)
	case *appsv1.StatefulSet:
		w.Replicas = int(*o.Spec.Replicas)
		w.Ordered = o.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement
		if o.Spec.Ordinals != nil {
			w.Start = int(o.Spec.Ordinals.Start)
		}
		for i := range o.Spec.VolumeClaimTemplates {
			w.Claims = append(w.Claims, o.Spec.VolumeClaimTemplates[i].Name)
		}
	case *batchv1.CronJob:
		w.Replicas = parallel(&o.Spec.JobTemplate.Spec)
		w.AtBoot = d.Meta.Annotations[workload.AnnotationSchedule] == workload.ScheduleBoot
	case *batchv1.Job:
		w.Replicas = parallel(&o.Spec)
		w.PerBoot = d.Meta.Annotations[workload.AnnotationRunPolicy] == workload.RunPerBoot
	}
	return w
}

// Claims returns the claims that a StatefulSet makes for its pods.
func Claims(w *workload.Workload) []*v1.PersistentVolumeClaim {
	set, is := w.Object.(*appsv1.StatefulSet)
	if !is || len(set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	var all []*v1.PersistentVolumeClaim
	for _, name := range w.Names() {
		for i := range set.Spec.VolumeClaimTemplates {
			c := set.Spec.VolumeClaimTemplates[i] // shares what must not be modified
			c.Namespace, c.Name = w.Key.Namespace, c.Name+"-"+name
			c.Spec.VolumeName = "" // of which each claim would be the only one
			all = append(all, &c)
		}
	}
	return all
}

// parallel returns how many pods of a Job may run at once.
func parallel(s *batchv1.JobSpec) int {
	if s.Completions != nil {
		return int(min(*s.Parallelism, *s.Completions))
	}
	return int(*s.Parallelism)
}

// Pod returns the pod of the template, under the name in manifests of the last pod of the workload,
// which is the longest one.
func (d Document) Pod(w *workload.Workload) *v1.Pod {
	t := d.Template.DeepCopy()
	p := &v1.Pod{Spec: t.Spec}
	p.Namespace, p.Labels, p.Annotations = d.Meta.Namespace, t.Labels, t.Annotations
	p.Name = w.Last()
	if w.MakesJobs() && p.Spec.RestartPolicy == "" {
		p.Spec.RestartPolicy = v1.RestartPolicyNever // Validate says that it is missing
	}
	set, ok := d.Object.(*appsv1.StatefulSet)
	if !ok {
		return p
	}
	p.Spec.Hostname, p.Spec.Subdomain = "", "" // given by the StatefulSet
	for _, claim := range w.Claims {
		setClaim(p, claim, claim+"-"+p.Name)
	}
	if len(validation.IsDNS1123Label(set.Spec.ServiceName)) == 0 {
		p.Spec.Subdomain = set.Spec.ServiceName
	}
	return p
}

// setClaim makes the volume with a name one of a claim. It adds the volume if the pod has none.
func setClaim(p *v1.Pod, name, claim string) {
	source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == name {
			p.Spec.Volumes[i].VolumeSource = source
			return
		}
	}
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
}

// Validate validates the document, which has its defaults, by Kubernetes' rules, but for the template's
// pod, and by what podrun can run of it. p is the template's pod, with its defaults.
func (d Document) Validate(w *workload.Workload, p *v1.Pod) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	switch o := d.Object.(type) {
	case *appsv1.Deployment:
		errs = workloads.Deployment(o)
	case *appsv1.ReplicaSet:
		errs = workloads.ReplicaSet(o)
	case *appsv1.StatefulSet:
		errs = workloads.StatefulSet(o)
		errs = append(errs, longHost(w)...)
	case *appsv1.DaemonSet:
		errs = workloads.DaemonSet(o)
	case *batchv1.Job:
		errs = workloads.Job(o)
	case *batchv1.CronJob:
		errs = workloads.CronJob(o)
		if job := &o.Spec.JobTemplate.Spec; *job.CompletionMode == batchv1.IndexedCompletion && job.Completions != nil {
			last := *w
			last.Replicas = int(*job.Completions)
			errs = append(errs, longHost(&last)...)
		}
		spec = spec.Child("jobTemplate", "spec")
	}
	number := "replicas"
	if w.MakesJobs() {
		number = "parallelism"
	}
	if w.Replicas > workload.MaxReplicas {
		errs = append(errs, field.Invalid(spec.Child(number), w.Replicas, fmt.Sprintf(
			"podrun makes at most %d pods of a workload", workload.MaxReplicas)))
	}
	if p.Annotations[pod.AnnotationUpdate] != "" {
		at := spec.Child("template", "metadata", "annotations").Key(pod.AnnotationUpdate)
		errs = append(errs, field.Forbidden(at, "is for Pods; a Deployment has spec.strategy, a DaemonSet spec.updateStrategy"))
	}
	if w.Replicas > 1 {
		errs = append(errs, samePorts(w, p, spec, number)...)
	}
	return errs
}

// Alone says why a workload that should have another pod while it is updated has none; "" if it does or should not.
func Alone(w *workload.Workload, p *v1.Pod) string {
	why := pod.RunsAlone(p, true)
	if strategy, rolling := w.Rolling(); !rolling || strategy.Surge == 0 || why == "" {
		return ""
	}
	return "a pod ends before the next one starts: no two can run at a time, because " + why
}

// longHost refuses a name with which that of the last pod is no host name.
func longHost(w *workload.Workload) field.ErrorList {
	long := len(w.Last())
	if w.Key.Name == "" || long <= validation.DNS1123LabelMaxLength {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), w.Key.Name, fmt.Sprintf(
		"the name of its last pod is a host name, of %d characters; the maximum is %d",
		long, validation.DNS1123LabelMaxLength))}
}

// samePorts refuses the ports of the host that several pods of one template would have. spec is the path of what has
// the template.
func samePorts(w *workload.Workload, p *v1.Pod, spec *field.Path, number string) field.ErrorList {
	var errs field.ErrorList
	spec = spec.Child("template", "spec")
	message := fmt.Sprintf("%d pods cannot have the same port of this machine; leave it out, or set %s to 1",
		w.Replicas, number)
	check := func(containers []v1.Container, path *field.Path) {
		for i := range containers {
			for j, port := range containers[i].Ports {
				if port.HostPort != 0 {
					at := path.Index(i).Child("ports").Index(j)
					errs = append(errs, field.Forbidden(at.Child("hostPort"), message))
				}
			}
		}
	}
	check(p.Spec.InitContainers, spec.Child("initContainers"))
	check(p.Spec.Containers, spec.Child("containers"))
	return errs
}
