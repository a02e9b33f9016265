// Package workloads validates workloads and PersistentVolumeClaims by the rules by which the API server
// would accept their creation. It is pure. It does not validate the pod of a template, which package
// validate does, and gives nothing a default.
//
// Begin reading at Deployment.
package workloads

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var spec = field.NewPath("spec")

// Deployment validates a Deployment that has its defaults.
func Deployment(d *appsv1.Deployment) field.ErrorList {
	errs := meta(&d.ObjectMeta, apivalidation.NameIsDNSSubdomain)
	s := &d.Spec
	errs = append(errs, negative(spec.Child("replicas"), s.Replicas)...)
	errs = append(errs, template(d.Kind, s.Selector, &s.Template)...)
	errs = append(errs, deploymentStrategy(&s.Strategy, spec.Child("strategy"))...)
	errs = append(errs, negative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
	errs = append(errs, negative(spec.Child("revisionHistoryLimit"), s.RevisionHistoryLimit)...)
	if deadline := s.ProgressDeadlineSeconds; deadline != nil {
		path := spec.Child("progressDeadlineSeconds")
		errs = append(errs, negative(path, deadline)...)
		if *deadline <= s.MinReadySeconds {
			errs = append(errs, field.Invalid(path, *deadline, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

// ReplicaSet validates a ReplicaSet that has its defaults.
func ReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	errs := meta(&r.ObjectMeta, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, negative(spec.Child("replicas"), r.Spec.Replicas)...)
	errs = append(errs, negative(spec.Child("minReadySeconds"), &r.Spec.MinReadySeconds)...)
	return append(errs, template(r.Kind, r.Spec.Selector, &r.Spec.Template)...)
}

// DaemonSet validates a DaemonSet that has its defaults.
func DaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	errs := meta(&d.ObjectMeta, apivalidation.NameIsDNSSubdomain)
	s := &d.Spec
	errs = append(errs, template(d.Kind, s.Selector, &s.Template)...)
	errs = append(errs, negative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
	errs = append(errs, daemonStrategy(&s.UpdateStrategy, spec.Child("updateStrategy"))...)
	return append(errs, negative(spec.Child("revisionHistoryLimit"), s.RevisionHistoryLimit)...)
}

// StatefulSet validates a StatefulSet that has its defaults.
func StatefulSet(set *appsv1.StatefulSet) field.ErrorList {
	errs := meta(&set.ObjectMeta, apivalidation.NameIsDNSLabel)
	s := &set.Spec
	if p := s.PodManagementPolicy; p != appsv1.OrderedReadyPodManagement && p != appsv1.ParallelPodManagement {
		errs = append(errs, field.Invalid(spec.Child("podManagementPolicy"), p, fmt.Sprintf("must be '%s' or '%s'",
			appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)))
	}
	errs = append(errs, statefulStrategy(&s.UpdateStrategy, spec.Child("updateStrategy"))...)
	if p := s.PersistentVolumeClaimRetentionPolicy; p != nil {
		path := spec.Child("persistentVolumeClaimRetentionPolicy")
		errs = append(errs, retention(p.WhenDeleted, path.Child("whenDeleted"))...)
		errs = append(errs, retention(p.WhenScaled, path.Child("whenScaled"))...)
	}
	for i := range s.VolumeClaimTemplates {
		path := spec.Child("volumeClaimTemplates").Index(i)
		errs = append(errs, claimSpec(&s.VolumeClaimTemplates[i].Spec, path.Child("spec"))...)
	}
	errs = append(errs, negative(spec.Child("replicas"), s.Replicas)...)
	errs = append(errs, negative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
	if s.Ordinals != nil {
		errs = append(errs, negative(spec.Child("ordinals", "start"), &s.Ordinals.Start)...)
	}
	if name := s.ServiceName; name != "" {
		errs = append(errs, invalid(spec.Child("serviceName"), name, validation.IsDNS1123Label(name))...)
	}
	return append(errs, template(set.Kind, s.Selector, &s.Template)...)
}

func meta(m *metav1.ObjectMeta, name apivalidation.ValidateNameFunc) field.ErrorList {
	return apivalidation.ValidateObjectMeta(m, true, name, field.NewPath("metadata"))
}

// template validates the selector of a workload, and of its template what a pod alone may have.
func template(kind string, selector *metav1.LabelSelector, t *v1.PodTemplateSpec) field.ErrorList {
	path := spec.Child("selector")
	var errs field.ErrorList
	switch {
	case selector == nil:
		errs = append(errs, field.Required(path, ""))
	case len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		errs = append(errs, field.Invalid(path, "{}", "empty selector is invalid for "+strings.ToLower(kind)))
	default:
		errs = metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err == nil && !parsed.Matches(labels.Set(t.Labels)) {
			errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"),
				labels.FormatLabels(t.Labels), "`selector` does not match template `labels`"))
		}
	}
	at := spec.Child("template", "spec")
	if policy := t.Spec.RestartPolicy; policy != "" && policy != v1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(
			at.Child("restartPolicy"), policy, []v1.RestartPolicy{v1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(at.Child("activeDeadlineSeconds"),
			fmt.Sprintf("activeDeadlineSeconds in %s is not supported", kind)))
	}
	return errs
}

func deploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")}
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		unavailable, surge := s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge
		errs := intOrPercent(unavailable, rolling.Child("maxUnavailable"))
		errs = append(errs, intOrPercent(surge, rolling.Child("maxSurge"))...)
		if number(unavailable) == 0 && number(surge) == 0 {
			errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable.String(),
				"may not be 0 when `maxSurge` is 0"))
		}
		return append(errs, atMost100(unavailable, rolling.Child("maxUnavailable"))...)
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), s.Type, []appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType,
		})}
	}
	return nil
}

func daemonStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), s.Type, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType,
		})}
	}
	unavailable, surge := s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge
	path = path.Child("rollingUpdate")
	var errs field.ErrorList
	for _, one := range []struct {
		value *intstr.IntOrString
		path  *field.Path
	}{{unavailable, path.Child("maxUnavailable")}, {surge, path.Child("maxSurge")}} {
		errs = append(errs, intOrPercent(one.value, one.path)...)
		errs = append(errs, atMost100(one.value, one.path)...)
	}
	switch {
	case number(unavailable) != 0 && number(surge) != 0:
		errs = append(errs, field.Invalid(path.Child("maxSurge"), surge.String(),
			"may not be set when maxUnavailable is non-zero"))
	case number(unavailable) == 0 && number(surge) == 0:
		errs = append(errs, field.Required(path.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func statefulStrategy(s *appsv1.StatefulSetUpdateStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch {
	case s.Type != appsv1.OnDeleteStatefulSetStrategyType && s.Type != appsv1.RollingUpdateStatefulSetStrategyType:
		return field.ErrorList{field.Invalid(path.Child("type"), s.Type, fmt.Sprintf("must be '%s' or '%s'",
			appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType))}
	case s.RollingUpdate == nil:
		return nil
	case s.Type == appsv1.OnDeleteStatefulSetStrategyType:
		return field.ErrorList{field.Invalid(rolling, "{}", fmt.Sprintf("only allowed for updateStrategy '%s'",
			appsv1.RollingUpdateStatefulSetStrategyType))}
	}
	errs := negative(rolling.Child("partition"), s.RollingUpdate.Partition)
	if unavailable := s.RollingUpdate.MaxUnavailable; unavailable != nil {
		at := rolling.Child("maxUnavailable")
		errs = append(errs, intOrPercent(unavailable, at)...)
		if number(unavailable) == 0 {
			errs = append(errs, field.Invalid(at, unavailable.String(), "cannot be 0"))
		}
		errs = append(errs, atMost100(unavailable, at)...)
	}
	return errs
}

func retention(t appsv1.PersistentVolumeClaimRetentionPolicyType, path *field.Path) field.ErrorList {
	switch t {
	case appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		return nil
	}
	return field.ErrorList{field.NotSupported(path, t, []appsv1.PersistentVolumeClaimRetentionPolicyType{
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	})}
}

func negative(path *field.Path, n *int32) field.ErrorList {
	if n == nil {
		return nil
	}
	return apivalidation.ValidateNonnegativeField(int64(*n), path)
}

func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// intOrPercent validates a number that is not negative, or a percentage.
func intOrPercent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v.Type == intstr.String {
		return invalid(path, v.StrVal, validation.IsValidPercent(v.StrVal))
	}
	return negative(path, &v.IntVal)
}

// atMost100 refuses a percentage of more than 100.
func atMost100(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if percent, ok := percentage(v); ok && percent > 100 {
		return field.ErrorList{field.Invalid(path, v.String(), "must not be greater than 100%")}
	}
	return nil
}

// number returns a number, or the number in a percentage.
func number(v *intstr.IntOrString) int {
	if percent, ok := percentage(v); ok {
		return percent
	}
	return v.IntValue()
}

func percentage(v *intstr.IntOrString) (int, bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return n, err == nil
}
