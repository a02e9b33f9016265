package cmd

import (
	"slices"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/query"
)

// completionPods returns the pods that an incomplete command line can refer to. cobra does not run
// PersistentPreRunE for the command that is being completed, so completionPods calls prepare
// itself. It returns nil if the pods cannot be read.
func (a *app) completionPods(c *cobra.Command) []*v1.Pod {
	if a.prepare(c, nil) != nil {
		return nil
	}
	pods, err := a.pods().Pods()
	if err != nil {
		return nil
	}
	if all, err := c.Flags().GetBool("all-namespaces"); err == nil && all {
		return pods
	}
	namespace, err := c.Flags().GetString("namespace")
	if err != nil {
		return pods
	}
	return query.InNamespace(pods, namespace)
}

// completePods completes the argument of a command that takes one pod.
func (a *app) completePods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return query.Completions(a.completionPods(c), nil), cobra.ShellCompDirectiveNoFileComp
}

// completeManyPods completes the arguments of a command that takes any number of pods.
func (a *app) completeManyPods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return query.Completions(a.completionPods(c), args), cobra.ShellCompDirectiveNoFileComp
}

// completeResources completes a resource type and, after pods, the names of pods. kinds are the
// resource types of the command.
func (a *app) completeResources(kinds ...string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return kinds, cobra.ShellCompDirectiveNoFileComp
		case query.IsPods(args[0]) && slices.Contains(kinds, "pods"):
			return a.completeManyPods(c, args[1:], "")
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeContainers completes --container with the containers of the pod on the command line, or
// of all pods if there is none yet.
func (a *app) completeContainers(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	pods := a.completionPods(c)
	if len(args) > 0 {
		pods = query.ByName(pods, args[0])
	}
	return query.ContainerNames(pods), cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes --namespace with the namespaces of all pods.
func (a *app) completeNamespaces(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if a.prepare(c, nil) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	pods, err := a.pods().Pods()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return query.Namespaces(pods), cobra.ShellCompDirectiveNoFileComp
}

// completeFlags registers completions for those flags of a command that take pods, namespaces,
// containers or fixed values.
func (a *app) completeFlags(c *cobra.Command) {
	completions := map[string]cobra.CompletionFunc{
		"namespace": a.completeNamespaces, "container": a.completeContainers,
		"output": cobra.FixedCompletions(
			[]string{"wide", "json", "yaml", "name", "jsonpath=", "custom-columns=", "go-template="},
			cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp,
		),
		"types": cobra.FixedCompletions(
			[]string{v1.EventTypeNormal, v1.EventTypeWarning},
			cobra.ShellCompDirectiveNoFileComp,
		),
		"sort-by": cobra.FixedCompletions([]string{"cpu", "memory"}, cobra.ShellCompDirectiveNoFileComp),
		"for": cobra.FixedCompletions(
			[]string{"condition=Ready", "phase=Succeeded", "phase=Failed", "phase=Running", "delete"},
			cobra.ShellCompDirectiveNoFileComp,
		),
	}
	for name, complete := range completions {
		if c.Flags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, complete) // fails only if the flag does not exist or has one already
		}
	}
}
