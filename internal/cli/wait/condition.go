package wait

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/printers"
)

// condition reports whether a pod is in the state to wait for. p is nil if the pod does not exist. The error is why
// that cannot be evaluated as the pod is now.
type condition func(p *v1.Pod) (met bool, err error)

// parseCondition parses the value of --for of podrun wait.
func parseCondition(text string) (condition, error) {
	kind, rest, _ := strings.Cut(text, "=")
	switch {
	case text == "delete":
		return func(p *v1.Pod) (bool, error) { return p == nil, nil }, nil
	case text == "create":
		return func(p *v1.Pod) (bool, error) { return p != nil, nil }, nil
	case kind == "phase" && rest != "":
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed} {
			if strings.EqualFold(string(phase), rest) {
				return func(p *v1.Pod) (bool, error) { return p != nil && p.Status.Phase == phase, nil }, nil
			}
		}
		return nil, fmt.Errorf("--for %q: a phase is Pending, Running, Succeeded or Failed", text)
	case kind == "jsonpath" && strings.HasPrefix(rest, "{"):
		f, err := parseField(rest)
		return func(p *v1.Pod) (bool, error) {
			if p == nil {
				return false, nil
			}
			return f(p)
		}, err
	case kind == "condition" && rest != "":
		name, value, hasValue := strings.Cut(rest, "=")
		if !hasValue {
			value = string(v1.ConditionTrue)
		}
		return func(p *v1.Pod) (bool, error) { return p != nil && hasCondition(p, name, value), nil }, nil
	}
	if strings.EqualFold(text, string(v1.PodReady)) {
		return nil, fmt.Errorf("--for %q: did you mean condition=%s?", text, v1.PodReady)
	}
	return nil, fmt.Errorf(
		"--for %q: must be condition=NAME[=VALUE], phase=NAME, jsonpath={PATH}[=VALUE], create or delete", text)
}

// parseField parses {PATH} or {PATH}=VALUE. The result reports whether an object has such a field.
func parseField(text string) (func(any) (bool, error), error) {
	end := strings.LastIndex(text, "}") + 1
	value, hasValue := strings.CutPrefix(text[end:], "=")
	path, err := printers.ParseJSONPath(text[:end])
	if err != nil || !hasValue && text[end:] != "" {
		return nil, fmt.Errorf("--for jsonpath=%s: must be {PATH} or {PATH}=VALUE", text)
	}
	return func(o any) (bool, error) {
		got, err := path(o)
		if err != nil {
			return false, fmt.Errorf("jsonpath: %w", err)
		}
		return hasValue && string(got) == value || !hasValue && len(got) > 0, nil
	}, nil
}

// hascondition reports whether a condition of p has a value. It ignores case, as kubectl does.
func hasCondition(p *v1.Pod, name, value string) bool {
	for _, c := range p.Status.Conditions {
		if strings.EqualFold(string(c.Type), name) {
			return strings.EqualFold(string(c.Status), value)
		}
	}
	return false
}
