package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/status"
)

// waited reports whether a pod is in the state to wait for. p is nil if the pod does not exist.
type waited func(p *v1.Pod) bool

func (a *app) waitCommand() *cobra.Command {
	var namespace, what string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "wait POD… --for=CONDITION",
		Short: "Wait until pods are ready, done or removed",
		Long: "wait exits when each of the pods has met the condition of --for, or with exit code 1 at the\n" +
			"timeout. It also waits for pods that do not exist yet. Whether a pod is ready is unknown while no\n" +
			"process runs it, so wait then waits until a process does. --for is one of\n\n" +
			"  condition=NAME[=True|False]  a condition of the pod: Ready, Initialized, ContainersReady, …\n" +
			"  phase=NAME                   Pending, Running, Succeeded or Failed\n" +
			"  jsonpath={PATH}[=VALUE]      a field of the pod exists, or has that value\n" +
			"  delete                       the pod has been removed",
		Example: "  podrun wait web --for=condition=Ready --timeout 60s\n  podrun wait job --for=phase=Succeeded\n" +
			"  podrun wait web db --for=delete",
		Args: argCount(1, many),
		RunE: func(c *cobra.Command, args []string) error {
			is, err := waitedFor(what)
			switch {
			case err != nil:
				return usage(c, err)
			case timeout < 0:
				return usage(c, fmt.Errorf("--timeout %s: must not be negative", timeout))
			}
			return a.wait(c.Context(), namespace, args, is, timeout)
		},
	}
	c.Flags().StringVar(&what, "for", "",
		"condition to wait for: condition=NAME[=VALUE], phase=NAME, jsonpath={PATH}[=VALUE] or delete")
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "maximum time to wait; 0: check once")
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}

var errTimedOut = errors.New("timed out")

func (a *app) wait(ctx context.Context, namespace string, names []string, is waited, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimedOut)
	defer cancel()
	left, late := names, names // late is left, with the message of Unowned pods
	err := a.eachChange(ctx, a.dirs().Statuses(), func() (bool, error) {
		pods, err := settledPods(a.dirs())
		if err != nil {
			return false, err
		}
		var not []string
		late = nil
		for _, name := range left {
			p, err := find(within(pods, namespace), name)
			var absent *notFoundError
			switch {
			case err != nil && !errors.As(err, &absent):
				return false, err
			case !is(p):
				not = append(not, name)
				if p != nil && status.IsUnowned(p) {
					name += " (" + p.Status.Message + ")"
				}
				late = append(late, name)
			default:
				fmt.Fprintf(a.Out, "pod/%s condition met\n", bareName(name))
			}
		}
		left = not
		return len(left) == 0, nil
	})
	if errors.Is(err, errTimedOut) {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("timed out waiting for %s", strings.Join(late, ", "))}
	}
	return err
}

// waitedFor parses the value of --for.
func waitedFor(text string) (waited, error) {
	kind, rest, _ := strings.Cut(text, "=")
	switch {
	case text == "delete":
		return func(p *v1.Pod) bool { return p == nil }, nil
	case kind == "phase" && rest != "":
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed} {
			if strings.EqualFold(string(phase), rest) {
				return func(p *v1.Pod) bool { return p != nil && p.Status.Phase == phase }, nil
			}
		}
		return nil, fmt.Errorf("--for %q: a phase is Pending, Running, Succeeded or Failed", text)
	case kind == "jsonpath" && strings.HasPrefix(rest, "{"):
		return waitedField(rest)
	case kind == "condition" && rest != "":
		name, value, given := strings.Cut(rest, "=")
		if !given {
			value = string(v1.ConditionTrue)
		}
		return func(p *v1.Pod) bool { return p != nil && hasCondition(p, name, value) }, nil
	}
	return nil, fmt.Errorf(
		"--for %q: must be condition=NAME[=VALUE], phase=NAME, jsonpath={PATH}[=VALUE] or delete", text)
}

// waitedField parses {PATH} or {PATH}=VALUE.
func waitedField(text string) (waited, error) {
	end := strings.LastIndex(text, "}") + 1
	value, given := strings.CutPrefix(text[end:], "=")
	path, err := printers.ParseJSONPath(text[:end])
	if err != nil || !given && text[end:] != "" {
		return nil, fmt.Errorf("--for jsonpath=%s: must be {PATH} or {PATH}=VALUE", text)
	}
	return func(p *v1.Pod) bool {
		if p == nil {
			return false
		}
		got, err := path(p)
		return err == nil && (given && string(got) == value || !given && len(got) > 0)
	}, nil
}

// hasCondition reports whether a condition of p has a value. It ignores case, as kubectl does.
func hasCondition(p *v1.Pod, name, value string) bool {
	for _, c := range p.Status.Conditions {
		if strings.EqualFold(string(c.Type), name) {
			return strings.EqualFold(string(c.Status), value)
		}
	}
	return false
}
