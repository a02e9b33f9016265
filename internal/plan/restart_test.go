package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestRestartRules checks which exit codes restart a container: the first matching rule decides, else the container's
// restartPolicy, else the pod's.
func TestRestartRules(t *testing.T) {
	never := v1.ContainerRestartPolicyNever
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, tt := range []struct {
		name   string
		pod    v1.RestartPolicy
		own    *v1.ContainerRestartPolicy
		rules  []v1.ContainerRestartRule
		code   int
		expect bool
	}{
		{"the pod's policy", v1.RestartPolicyOnFailure, nil, nil, 1, true},
		{"its own comes first", v1.RestartPolicyAlways, &never, nil, 1, false},
		{"own OnFailure", v1.RestartPolicyNever, new(v1.ContainerRestartPolicyOnFailure), nil, 1, true},
		{"own OnFailure, succeeded", v1.RestartPolicyAlways, new(v1.ContainerRestartPolicyOnFailure), nil, 0, false},
		{"own Always", v1.RestartPolicyNever, new(v1.ContainerRestartPolicyAlways), nil, 0, true},
		{"a rule comes before that", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(in, 42)}, 42, true},
		{"a rule that does not match", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(in, 42)}, 1, false},
		{"the second rule", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(in, 42), rule(in, 1, 2)}, 2, true},
		{"NotIn", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(notIn, 0, 1)}, 2, true},
		{"NotIn, listed", v1.RestartPolicyNever, &never, []v1.ContainerRestartRule{rule(notIn, 0, 1)}, 1, false},
	} {
		p := wanted(tt.pod, "a")
		c := &p.Spec.Containers[0]
		c.RestartPolicy, c.RestartPolicyRules = tt.own, tt.rules
		if got := ShouldRestart(p, c, tt.code); got != tt.expect {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
