package cmd

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/pod"
)

// completionPods returns the pods that an incomplete command line can refer to. cobra does not run
// PersistentPreRunE for the command that is being completed, so completionPods calls prepare
// itself. It returns nil if the pods cannot be read.
func (a *app) completionPods(c *cobra.Command) []*v1.Pod {
	if a.prepare(c, nil) != nil {
		return nil
	}
	pods, err := readPods(a.dirs())
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
	return within(pods, namespace)
}

// shortName returns the name of a pod in its manifest: the full name without the suffix of the node
// name.
func shortName(p *v1.Pod) string {
	return strings.TrimSuffix(p.Name, "-"+strings.ToLower(p.Spec.NodeName))
}

// podWords returns the completions for the names of pods, each with the state of the pod: the name
// in the manifest, or the full name if several pods have that name. It leaves out pods that are in
// given.
func podWords(pods []*v1.Pod, given []string) []string {
	count := map[string]int{}
	for _, p := range pods {
		count[shortName(p)]++
	}
	var words []string
	for _, p := range pods {
		name := shortName(p)
		if count[name] > 1 {
			name = p.Name
		}
		if !slices.Contains(given, name) && !slices.Contains(given, p.Name) {
			words = append(words, name+"\t"+summary.Of(p).Text)
		}
	}
	return words
}

// completePods completes the argument of a command that takes one pod.
func (a *app) completePods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return podWords(a.completionPods(c), nil), cobra.ShellCompDirectiveNoFileComp
}

// completeManyPods completes the arguments of a command that takes any number of pods.
func (a *app) completeManyPods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return podWords(a.completionPods(c), args), cobra.ShellCompDirectiveNoFileComp
}

// completeResources completes a resource type and, after pods, the names of pods. kinds are the
// resource types of the command.
func (a *app) completeResources(kinds ...string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return kinds, cobra.ShellCompDirectiveNoFileComp
		case isPods(args[0]) && slices.Contains(kinds, "pods"):
			return a.completeManyPods(c, args[1:], "")
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeContainers completes --container with the containers of the pod on the command line, or
// of all pods if there is none yet.
func (a *app) completeContainers(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, p := range a.completionPods(c) {
		if len(args) > 0 && p.Name != bareName(args[0]) && shortName(p) != bareName(args[0]) {
			continue
		}
		for _, spec := range pod.AllContainers(p) {
			if !slices.Contains(words, spec.Name) {
				words = append(words, spec.Name)
			}
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes --namespace with the namespaces of all pods.
func (a *app) completeNamespaces(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if a.prepare(c, nil) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	pods, err := readPods(a.dirs())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, p := range pods {
		if !slices.Contains(words, p.Namespace) {
			words = append(words, p.Namespace)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeFlags registers completions for those flags of a command that take pods, namespaces,
// containers or fixed values.
func (a *app) completeFlags(c *cobra.Command) {
	words := map[string]cobra.CompletionFunc{
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
	for name, complete := range words {
		if c.Flags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, complete) // fails only if the flag does not exist or has one already
		}
	}
}
