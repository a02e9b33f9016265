package cmd

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
)

// completionPods are the pods that a half-typed command line may mean: completion runs before a command's
// checks, and says nothing where it knows nothing.
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

// shortName is a pod's name in its manifest.
func shortName(p *v1.Pod) string {
	return strings.TrimSuffix(p.Name, "-"+strings.ToLower(p.Spec.NodeName))
}

// podWords are the names by which the pods may be called: the manifest's, unless two have it.
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
			words = append(words, name+"\t"+cli.Of(p).Text)
		}
	}
	return words
}

// completePods completes the one pod of a command.
func (a *app) completePods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return podWords(a.completionPods(c), nil), cobra.ShellCompDirectiveNoFileComp
}

// completeManyPods completes any number of pods.
func (a *app) completeManyPods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return podWords(a.completionPods(c), args), cobra.ShellCompDirectiveNoFileComp
}

// completeResources completes `pods NAME…`; kinds are those that the command knows.
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

// completeContainers completes --container by the pod that is named already.
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

// completeNamespaces completes --namespace by the pods that there are.
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

// completeFlags makes the flags of a command complete that name something of pods'.
func (a *app) completeFlags(c *cobra.Command) {
	words := map[string]cobra.CompletionFunc{
		"namespace": a.completeNamespaces, "container": a.completeContainers,
		"output":  cobra.FixedCompletions([]string{"wide", "json", "yaml", "name", "jsonpath=", "custom-columns=", "go-template="}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp),
		"types":   cobra.FixedCompletions([]string{v1.EventTypeNormal, v1.EventTypeWarning}, cobra.ShellCompDirectiveNoFileComp),
		"sort-by": cobra.FixedCompletions([]string{"cpu", "memory"}, cobra.ShellCompDirectiveNoFileComp),
		"for":     cobra.FixedCompletions([]string{"condition=Ready", "phase=Succeeded", "phase=Failed", "phase=Running", "delete"}, cobra.ShellCompDirectiveNoFileComp),
	}
	for name, complete := range words {
		if c.Flags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, complete) // fails only for a flag that is not there, or twice
		}
	}
}
