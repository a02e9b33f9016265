package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fielderrors "k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install" // the scheme's types and defaults
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install" // the scheme's types and defaults
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install" // kinds that podrun passes over
	"k8s.io/kubernetes/pkg/apis/storage"
	_ "k8s.io/kubernetes/pkg/apis/storage/install" // the scheme's types and defaults
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
)

// maxReplicas is how many pods of one workload podrun takes. More are not made here either.
const maxReplicas = 1000

// set is what workloads have in common.
type set struct {
	*metav1.ObjectMeta
	template *core.PodTemplateSpec
	// count is the number of pods, and first the index of the first one. The one pod of a DaemonSet
	// has no index.
	count, first int
}

// workload judges a workload as the API server does and makes the pods that its controller would make,
// under podrun's names for them. It returns false if the object is none.
func (k kubernetes) workload(v *verdict, object runtime.Object) bool {
	var s set
	var errs fielderrors.ErrorList
	switch o := object.(type) {
	case *apps.Deployment:
		s = set{&o.ObjectMeta, &o.Spec.Template, int(o.Spec.Replicas), 0}
		errs = appsvalidation.ValidateDeployment(o, s.prepare())
	case *apps.ReplicaSet:
		s = set{&o.ObjectMeta, &o.Spec.Template, int(o.Spec.Replicas), 0}
		errs = appsvalidation.ValidateReplicaSet(o, s.prepare())
	case *apps.DaemonSet:
		s = set{&o.ObjectMeta, &o.Spec.Template, 1, 0}
		errs = appsvalidation.ValidateDaemonSet(o, s.prepare())
	case *apps.StatefulSet:
		s = set{&o.ObjectMeta, &o.Spec.Template, int(o.Spec.Replicas), 0}
		if o.Spec.Ordinals != nil {
			s.first = int(o.Spec.Ordinals.Start)
		}
		errs = appsvalidation.ValidateStatefulSet(o, appsvalidation.StatefulSetValidationOptions{}, s.prepare())
	case *batch.Job:
		s = set{&o.ObjectMeta, &o.Spec.Template, 0, 0}
		errs = validateJob(o, s.prepareJob(o))
		k.restrictTemplate(v, s)
	case *batch.CronJob:
		s = set{&o.ObjectMeta, &o.Spec.JobTemplate.Spec.Template, 0, 0}
		errs = validateCronJob(o, s.prepare())
		k.restrictTemplate(v, s)
	default:
		return false
	}
	for _, e := range errs {
		v.Errors = append(v.Errors, finding{
			Field: e.Field, Message: e.ErrorBody(), Stop: e.Type == fielderrors.ErrorTypeInternal,
		})
	}
	if len(errs) > 0 || s.count > maxReplicas {
		return true
	}
	for i := s.first; i < s.first+s.count; i++ {
		p := &core.Pod{ObjectMeta: *s.template.ObjectMeta.DeepCopy(), Spec: *s.template.Spec.DeepCopy()}
		p.Name, p.Namespace = s.Name, s.Namespace
		if _, one := object.(*apps.DaemonSet); !one {
			p.Name = fmt.Sprintf("%s-%d", s.Name, i)
		}
		if o, ok := object.(*apps.StatefulSet); ok {
			identify(p, o, i)
		}
		if err := complete(p); err != nil {
			v.Errors = append(v.Errors, finding{Message: err.Error(), Stop: true})
			return true
		}
		k.pod(v, p)
	}
	return true
}

// complete gives a pod the defaults that a template does not have.
func complete(p *core.Pod) error {
	var out v1.Pod
	if err := corev1.Convert_core_Pod_To_v1_Pod(p, &out, nil); err != nil {
		return err
	}
	corev1.SetObjectDefaults_Pod(&out)
	return corev1.Convert_v1_Pod_To_core_Pod(&out, p, nil)
}

// prepare gives a workload the namespace of a request that names none, and returns how its template is
// validated.
func (s set) prepare() corevalidation.PodValidationOptions {
	if s.Namespace == "" {
		s.Namespace = v1.NamespaceDefault
	}
	return podutil.GetValidationOptionsFromPodTemplate(s.template, nil)
}

// validateJob validates a Job. Kubernetes' validation ends in a panic where completions are null and the success
// policy has indexes; the API server then refuses the request.
func validateJob(o *batch.Job, opts batchvalidation.JobValidationOptions) (errs fielderrors.ErrorList) {
	defer func() {
		if failed := recover(); failed != nil {
			errs = fielderrors.ErrorList{fielderrors.InternalError(fielderrors.NewPath("spec"), fmt.Errorf("%v", failed))}
		}
	}()
	return batchvalidation.ValidateJobCreate(o, opts)
}

// validateCronJob validates a CronJob, whose Job template may end in the same panic.
func validateCronJob(o *batch.CronJob, opts corevalidation.PodValidationOptions) (errs fielderrors.ErrorList) {
	defer func() {
		if failed := recover(); failed != nil {
			path := fielderrors.NewPath("spec", "jobTemplate", "spec")
			errs = fielderrors.ErrorList{fielderrors.InternalError(path, fmt.Errorf("%v", failed))}
		}
	}()
	return batchvalidation.ValidateCronJobCreate(o, opts)
}

// prepareJob gives a Job the selector and labels that the API server gives it, and returns how it is validated.
func (s set) prepareJob(o *batch.Job) batchvalidation.JobValidationOptions {
	opts := batchvalidation.JobValidationOptions{PodValidationOptions: s.prepare(), RequirePrefixedLabels: true}
	if o.Spec.ManualSelector != nil && *o.Spec.ManualSelector {
		return opts
	}
	o.UID = "u"
	if s.template.Labels == nil {
		s.template.Labels = map[string]string{}
	}
	for name, value := range map[string]string{
		batch.LegacyJobNameLabel: o.Name, batch.JobNameLabel: o.Name,
		batch.LegacyControllerUidLabel: string(o.UID), batch.ControllerUidLabel: string(o.UID),
	} {
		if _, given := s.template.Labels[name]; !given {
			s.template.Labels[name] = value
		}
	}
	if o.Spec.Selector == nil {
		o.Spec.Selector = &metav1.LabelSelector{}
	}
	if o.Spec.Selector.MatchLabels == nil {
		o.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, given := o.Spec.Selector.MatchLabels[batch.ControllerUidLabel]; !given {
		o.Spec.Selector.MatchLabels[batch.ControllerUidLabel] = string(o.UID)
	}
	return opts
}

// restrictTemplate adds the violations of the levels by the pods of a Job. The pods themselves are not made: which
// there are depends on how earlier ones have ended.
func (k kubernetes) restrictTemplate(v *verdict, s set) {
	var out v1.Pod
	p := &core.Pod{ObjectMeta: *s.template.ObjectMeta.DeepCopy(), Spec: *s.template.Spec.DeepCopy()}
	if err := corev1.Convert_core_Pod_To_v1_Pod(p, &out, nil); err != nil {
		v.Errors = append(v.Errors, finding{Message: err.Error(), Stop: true})
		return
	}
	k.restrict(v, &out)
}

// identify gives a pod what the controller of StatefulSets gives the one with an index.
func identify(p *core.Pod, set *apps.StatefulSet, index int) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[appsv1.StatefulSetPodNameLabel] = p.Name
	p.Labels[appsv1.PodIndexLabel] = fmt.Sprint(index)
	p.Spec.Hostname, p.Spec.Subdomain = p.Name, set.Spec.ServiceName
	for _, claim := range set.Spec.VolumeClaimTemplates {
		source := core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{
			ClaimName: claim.Name + "-" + p.Name,
		}}
		found := false
		for i := range p.Spec.Volumes {
			if p.Spec.Volumes[i].Name == claim.Name {
				p.Spec.Volumes[i].VolumeSource, found = source, true
			}
		}
		if !found {
			p.Spec.Volumes = append(p.Spec.Volumes, core.Volume{Name: claim.Name, VolumeSource: source})
		}
	}
}

// claim judges a PersistentVolumeClaim as the API server does.
func (k kubernetes) claim(v *verdict, c *core.PersistentVolumeClaim) {
	if c.Namespace == "" {
		c.Namespace = v1.NamespaceDefault
	}
	opts := corevalidation.ValidationOptionsForPersistentVolumeClaimCreate()
	for _, e := range corevalidation.ValidatePersistentVolumeClaim(c, opts) {
		v.Errors = append(v.Errors, finding{Field: e.Field, Message: e.ErrorBody()})
	}
}

// volume judges a PersistentVolume as the API server does.
func (k kubernetes) volume(v *verdict, p *core.PersistentVolume) {
	opts := corevalidation.ValidationOptionsForPersistentVolume(p, nil)
	for _, e := range corevalidation.ValidatePersistentVolume(p, opts) {
		v.Errors = append(v.Errors, finding{Field: e.Field, Message: e.ErrorBody()})
	}
}

// class judges a StorageClass as the API server does.
func (k kubernetes) class(v *verdict, c *storage.StorageClass) {
	for _, e := range storagevalidation.ValidateStorageClass(c) {
		v.Errors = append(v.Errors, finding{Field: e.Field, Message: e.ErrorBody()})
	}
}

// driver judges a CSIDriver as the API server does.
func (k kubernetes) driver(v *verdict, d *storage.CSIDriver) {
	for _, e := range storagevalidation.ValidateCSIDriver(d) {
		v.Errors = append(v.Errors, finding{Field: e.Field, Message: e.ErrorBody()})
	}
}
