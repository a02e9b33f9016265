package validate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Policy limits the privileges of pods to a level of Kubernetes' Pod Security Standards, by
// Kubernetes' own implementation (k8s.io/pod-security-admission). A nil Policy allows all pods.
type Policy struct {
	level     api.Level
	evaluator policy.Evaluator
}

// NewPolicy returns the policy of a level: privileged, baseline or restricted. The policy of
// privileged is nil. Any other level is an error.
func NewPolicy(level string) (*Policy, error) {
	parsed, err := api.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("%q: must be privileged, baseline or restricted", level)
	}
	if parsed == api.LevelPrivileged {
		return nil, nil
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("reading the Pod Security Standards: %w", err)
	}
	return &Policy{level: parsed, evaluator: evaluator}, nil
}

// Judge returns an error for each violation of the policy by a pod.
func (p *Policy) Judge(pod *v1.Pod) field.ErrorList {
	if p == nil {
		return nil
	}
	refused := p.refused()
	var errs field.ErrorList
	for _, key := range deviceAnnotations(pod.Annotations) {
		// Kubernetes' rules do not cover these annotations, because in Kubernetes only device
		// plugins can grant devices.
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(key),
			refused+"devices"))
	}
	level := api.LevelVersion{Level: p.level, Version: api.LatestVersion()}
	for _, result := range p.evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
		if result.Allowed {
			continue
		}
		why := strings.TrimSuffix(fmt.Sprintf("%s (%s)", result.ForbiddenReason, result.ForbiddenDetail), " ()")
		errs = append(errs, field.Forbidden(field.NewPath("spec"), refused+why))
	}
	return errs
}

// refused begins the text of each violation.
func (p *Policy) refused() string {
	return fmt.Sprintf("--pod-security %s does not allow it: ", p.level)
}

// Refusal returns the violations of the policy by a pod in one line; "" if there are none.
func (p *Policy) Refusal(pod *v1.Pod) string {
	var all []string
	for _, e := range p.Judge(pod) {
		all = append(all, strings.TrimPrefix(e.Detail, p.refused()))
	}
	if len(all) == 0 {
		return ""
	}
	return p.refused() + strings.Join(all, "; ")
}
