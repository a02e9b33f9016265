package cmd

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/cli/cp"
	"podrun.io/podrun/internal/cli/images"
	"podrun.io/podrun/internal/cli/names"
	"podrun.io/podrun/internal/cli/query"
)

// completes returns the completion of arguments or a flag by the values that list returns, which never are files.
// cobra does not run PersistentPreRunE for the command that is being completed, so completes calls prepare itself.
func (a *app) completes(list func(c *cobra.Command, args []string, text string) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if a.prepare(c, nil) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list(c, args, text), cobra.ShellCompDirectiveNoFileComp
	}
}

// completionPods returns the pods that an incomplete command line can refer to. It returns nil if the pods cannot be
// read.
func (a *app) completionPods(c *cobra.Command) []*v1.Pod {
	pods, err := a.pods().Pods()
	if err != nil {
		return nil
	}
	return names.Selectable(pods, c.Flags())
}

// completePods completes the argument of a command that takes one pod.
func (a *app) completePods(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeManyPods(c, nil, text)
}

// completeManyPods completes the arguments of a command that takes any number of pods.
func (a *app) completeManyPods(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	return a.completes(func(c *cobra.Command, args []string, text string) []string {
		if names, is := names.Workloads(a.Dirs(), c.Flag("namespace").Value.String(), args, text); is {
			return names
		}
		return names.Pods(a.completionPods(c), args)
	})(c, args, text)
}

// completeRevised completes the arguments of a command that takes a pod or a workload with revisions.
func (a *app) completeRevised(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	return a.completes(func(c *cobra.Command, args []string, text string) []string {
		return names.Revised(a.completionPods(c), a.Dirs(), c.Flag("namespace").Value.String(), args, text)
	})(c, args, text)
}

// completePodAndContainer completes the arguments of a command that takes a pod and one of its containers.
func (a *app) completePodAndContainer() cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return a.completes(a.containers)(c, args, text)
		}
		return a.completePods(c, args, text)
	}
}

// completeFileSpecs completes the arguments of a command that takes files, as PATH or POD:PATH.
func (a *app) completeFileSpecs(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 || strings.ContainsAny(text, ":/.") {
		return nil, cobra.ShellCompDirectiveDefault // the shell's own completion of files
	}
	pods, _ := a.completePods(c, nil, text)
	return cp.Completions(pods), cobra.ShellCompDirectiveNoSpace
}

// completePodAndPorts completes the arguments of a command that takes a pod and ports of it.
func (a *app) completePodAndPorts(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completePods(c, args, text)
	}
	return a.completes(func(c *cobra.Command, args []string, text string) []string {
		return names.Ports(query.ByName(a.completionPods(c), args[0]), text)
	})(c, args, text)
}

// completeResources completes a resource type and, after pods, the names of pods. kinds are the
// resource types of the command.
func (a *app) completeResources(kinds ...string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0 && !strings.Contains(text, "/"):
			return kinds, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 0 || query.WorkloadKind(args[0]) != "":
			return a.completeManyPods(c, args, text)
		case query.IsPods(args[0]) && slices.Contains(kinds, "pods"):
			return a.completeManyPods(c, args[1:], text)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// containers returns the containers of the pod on the command line, or of all pods if there is none yet.
func (a *app) containers(c *cobra.Command, args []string, _ string) []string {
	pods := a.completionPods(c)
	if len(args) > 0 {
		pods = query.ByName(pods, args[0])
	}
	return query.ContainerNames(pods)
}

// completionTimeout is how long a completion asks containerd.
const completionTimeout = 3 * time.Second

// images returns the images that args lack. It starts no containerd.
func (a *app) images(c *cobra.Command, args []string, _ string) []string {
	ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
	defer cancel()
	o := a.connection()
	o.Running = true
	conn, err := connection.Open(ctx, o)
	if err != nil {
		return nil
	}
	defer conn.Close()
	return images.Names(ctx, conn.Driver, args)
}

// completeFlags registers completions for those flags of a command that take pods, namespaces,
// containers or fixed values.
func (a *app) completeFlags(c *cobra.Command) {
	fixed := func(values ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	completions := map[string]cobra.CompletionFunc{
		"namespace": a.completes(func(*cobra.Command, []string, string) []string {
			pods, _ := a.pods().Pods()
			return query.Namespaces(pods)
		}),
		"container": a.completes(a.containers),
		"output": cobra.FixedCompletions(
			[]string{"wide", "json", "yaml", "name", "manifest", "jsonpath=", "custom-columns=", "go-template="},
			cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp,
		),
		"types": fixed(v1.EventTypeNormal, v1.EventTypeWarning),
		"sort-by": fixed(".metadata.name", ".metadata.creationTimestamp", ".status.startTime",
			".status.containerStatuses[0].restartCount"),
		"for": a.completes(func(_ *cobra.Command, args []string, _ string) []string {
			return names.Conditions(args)
		}),
	}
	for name, complete := range completions {
		if c.Flags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, complete) // fails only if the flag does not exist or has one already
		}
	}
}
