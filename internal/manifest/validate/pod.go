// Package validate validates pods, ConfigMaps and Secrets by the rules by which the API server
// would accept their creation, and checks pods against the Pod Security Standards. It is pure: it
// reads and defaults nothing. It does not know files and lines: its errors name the field.
//
// Begin reading at Pod.
package validate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/manifest/validate/devices"
	"podrun.io/podrun/internal/pod"
)

// Pod validates a pod that has its defaults and not yet its identity, by the API server's rules for
// all fields that podrun supports. It also checks that the pod's names are not too long where
// podrun uses them. fullName is the name that the pod will have on the node.
func Pod(p *v1.Pod, nodeName, fullName string) field.ErrorList {
	errs := validateMeta(p, fullName, field.NewPath("metadata"))
	path := field.NewPath("spec")
	s := &p.Spec
	volumes, more := validateVolumes(s.Volumes, path.Child("volumes"))
	errs = append(errs, more...)
	errs = append(errs, validateContainers(s, volumes, path)...)
	errs = append(errs, devices.Validate(s, path)...)
	errs = append(errs, validatePodSecurity(s, path)...)
	errs = append(errs, validateBandwidth(p, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateNetworks(p, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateProgressDeadline(p, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateUpdate(p, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateAutoUpdate(p, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateJUnit(p, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateAppArmorAnnotations(p, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validatePodResources(p, path.Child("resources"))...)
	errs = append(errs, supported(s.RestartPolicy, path.Child("restartPolicy"),
		v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)...)
	errs = append(errs, validateNames(s, path)...)
	if s.NodeName != "" && s.NodeName != nodeName {
		errs = append(errs, field.Invalid(path.Child("nodeName"), s.NodeName, fmt.Sprintf("this node is %q; leave it out, or use --ignore-node-name", nodeName)))
	}
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, invalid(path.Child("activeDeadlineSeconds"), *s.ActiveDeadlineSeconds,
			validation.IsInRange(int(*s.ActiveDeadlineSeconds), 1, math.MaxInt32))...)
	}
	errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validateScheduling(s, path)...)
	if s.PriorityClassName != "" {
		errs = append(errs, invalid(path.Child("priorityClassName"), s.PriorityClassName,
			validation.IsDNS1123Subdomain(s.PriorityClassName))...)
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, invalid(path.Child("runtimeClassName"), *s.RuntimeClassName,
			validation.IsDNS1123Subdomain(*s.RuntimeClassName))...)
	}
	if s.PreemptionPolicy != nil {
		errs = append(errs, supported(*s.PreemptionPolicy, path.Child("preemptionPolicy"),
			v1.PreemptLowerPriority, v1.PreemptNever)...)
	}
	if s.OS != nil {
		errs = append(errs, supported(s.OS.Name, path.Child("os", "name"), v1.Linux, v1.Windows)...)
	}
	for i := range s.Tolerations {
		errs = append(errs, validateToleration(&s.Tolerations[i], path.Child("tolerations").Index(i))...)
	}
	return errs
}

func validateMeta(p *v1.Pod, full string, path *field.Path) field.ErrorList {
	meta := p.ObjectMeta
	if p.Name != "" && len(validation.IsDNS1123Subdomain(full)) == 0 {
		meta.Name = full // validated with its suffix, before which a name may end in a dash
	}
	errs := apivalidation.ValidateObjectMeta(&meta, true, apivalidation.NameIsDNSSubdomain, path)
	if p.Name == "" && p.GenerateName != "" {
		errs = append(field.ErrorList{field.Required(path.Child("name"),
			"a pod that is kept by a file needs a name of its own; generateName is not enough")},
			slices.DeleteFunc(errs, func(e *field.Error) bool { return e.Field == "metadata.name" })...)
	}
	errs = append(errs, validateAnnotations(p.Annotations, path.Child("annotations"))...)
	uidOK := p.UID == "" || safeElement(string(p.UID))
	if !uidOK {
		errs = append(errs, field.Invalid(path.Child("uid"), p.UID,
			"must be at most 63 letters, digits, '.', '_' and '-', and begin with a letter or digit"))
	}
	if p.Name == "" || meta.Name != full && len(validation.IsDNS1123Subdomain(p.Name)) > 0 {
		return errs
	}
	if bad := validation.IsDNS1123Subdomain(full); len(bad) > 0 {
		return append(errs, field.Invalid(path.Child("name"), p.Name,
			fmt.Sprintf("with the node's name it is %q, and %s", full, strings.Join(bad, "; "))))
	}
	// The log directory of the pod is named <namespace>_<name>_<uid>. Other files' names, such as that of its status,
	// have no UID, but more in its place than a short one has.
	length := len(p.Namespace) + len(full) + 2 + max(2*16, len(p.UID))
	if uidOK && length > maxFileName {
		errs = append(errs, field.Invalid(path.Child("name"), p.Name, fmt.Sprintf(
			"with namespace, node and UID it makes a file name of %d characters; the maximum is %d",
			length, maxFileName)))
	}
	return errs
}

// validateAnnotations validates the annotations whose values have a format.
func validateAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if after, ok := annotations[pod.AnnotationAfter]; ok {
		errs = validateAfter(after, path.Key(pod.AnnotationAfter))
	}
	errs = append(errs, validateDevices(annotations, path)...)
	cost, ok := annotations[v1.PodDeletionCost]
	if !ok {
		return errs
	}
	_, err := strconv.ParseInt(cost, 10, 32)
	if err != nil || cost[0] == '+' || cost[0] == '0' && cost != "0" {
		errs = append(errs, field.Invalid(path.Key(v1.PodDeletionCost), cost, "must be a 32bit integer"))
	}
	return errs
}

// maxFileName is the maximum length of a file name on Linux.
const maxFileName = 255

// safeElement reports whether s can be one element of a path.
func safeElement(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-", r)) {
			return false
		}
	}
	return true
}

func validateToleration(t *v1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
	} else if t.Operator != v1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator,
			"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect,
			"effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	switch t.Operator {
	case v1.TolerationOpEqual, "":
		errs = append(errs, invalid(path.Child("operator"), t.Value, validation.IsValidLabelValue(t.Value))...)
	case v1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("operator"), t.Value,
				"value must be empty when `operator` is 'Exists'"))
		}
	default:
		errs = append(errs,
			supported(t.Operator, path.Child("operator"), v1.TolerationOpEqual, v1.TolerationOpExists)...)
	}
	if t.Effect != "" {
		errs = append(errs, supported(t.Effect, path.Child("effect"),
			v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)...)
	}
	return errs
}

// supported returns an error if value is not one of values: Required if it is empty, else
// NotSupported.
func supported[T ~string](value T, path *field.Path, values ...T) field.ErrorList {
	for _, v := range values {
		if v == value {
			return nil
		}
	}
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return oneOf(value, path, values...)
}

// invalid returns an Invalid error for each message.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}
