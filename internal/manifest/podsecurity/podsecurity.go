// Package podsecurity limits the privileges of pods to a level of Kubernetes' Pod Security Standards, by Kubernetes'
// own implementation (k8s.io/pod-security-admission), and those of podrun's own that these do not know. It is pure.
//
// Begin reading at Policy.Judge.
package podsecurity

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"podrun.io/podrun/internal/manifest/validate"
)

// Policy is a level, and what it allows beyond that. A nil Policy allows all pods.
type Policy struct {
	level     api.Level
	evaluator policy.Evaluator
	drivers   []string
}

// New returns the policy of a level: privileged, baseline or restricted. The policy of
// privileged is nil. Any other level is an error. drivers are the CSI drivers that pods may have inline volumes of: in
// Kubernetes a cluster's administrator says so by a CSIDriver object, which here is in anybody's manifests.
func New(level string, drivers ...string) (*Policy, error) {
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
	return &Policy{level: parsed, evaluator: evaluator, drivers: drivers}, nil
}

// Judge returns an error for each violation of the policy by a pod.
func (p *Policy) Judge(pod *v1.Pod) field.ErrorList {
	if p == nil {
		return nil
	}
	refused := p.refused()
	var errs field.ErrorList
	for _, key := range validate.DeviceAnnotations(pod.Annotations) {
		// Kubernetes' rules do not cover these annotations, because in Kubernetes only device
		// plugins can grant devices.
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(key),
			refused+"devices"))
	}
	for i, v := range pod.Spec.Volumes {
		if v.CSI != nil && !slices.Contains(p.drivers, v.CSI.Driver) {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "volumes").Index(i).Child("csi", "driver"),
				refused+fmt.Sprintf("--inline-csi-drivers does not have %q", v.CSI.Driver)))
		}
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
