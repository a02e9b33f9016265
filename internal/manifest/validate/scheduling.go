package validate

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateScheduling validates the required node affinity, the readiness gates and the name of the
// service account. It does not validate what only a scheduler reads.
func validateScheduling(s *v1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.ServiceAccountName != "" {
		errs = invalid(path.Child("serviceAccountName"), s.ServiceAccountName,
			validation.IsDNS1123Subdomain(s.ServiceAccountName))
	}
	for i, gate := range s.ReadinessGates {
		errs = append(errs, invalid(path.Child("readinessGates").Index(i).Child("conditionType"), gate.ConditionType,
			validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil ||
		s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return errs
	}
	terms := path.Child("affinity", "nodeAffinity").
		Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	selector := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(selector) == 0 {
		return append(errs, field.Required(terms, "must have at least one node selector term"))
	}
	for i, term := range selector {
		for j := range term.MatchExpressions {
			at := terms.Index(i).Child("matchExpressions").Index(j)
			errs = append(errs, validateExpression(&term.MatchExpressions[j], at)...)
		}
		for j := range term.MatchFields {
			at := terms.Index(i).Child("matchFields").Index(j)
			errs = append(errs, validateFieldMatch(&term.MatchFields[j], at)...)
		}
	}
	return errs
}

// validateExpression validates a requirement on the labels of a node.
func validateExpression(r *v1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), "needed by In and NotIn"))
		}
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(path.Child("values"), "has no meaning for Exists and DoesNotExist"))
		}
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"), "must be exactly one for Gt and Lt"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metavalidation.ValidateLabelName(r.Key, path.Child("key"))...)
	for i, value := range r.Values {
		errs = append(errs, invalid(path.Child("values").Index(i), value, validation.IsValidLabelValue(value))...)
	}
	return errs
}

// validateFieldMatch validates a requirement on the fields of a node, of which only the name can be
// asked for.
func validateFieldMatch(r *v1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Operator != v1.NodeSelectorOpIn && r.Operator != v1.NodeSelectorOpNotIn {
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	} else if len(r.Values) != 1 {
		errs = append(errs, field.Required(path.Child("values"), "must be exactly one"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, value := range r.Values {
		errs = append(errs, invalid(path.Child("values").Index(i), value, validation.IsDNS1123Subdomain(value))...)
	}
	return errs
}
