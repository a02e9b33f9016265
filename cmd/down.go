package cmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/agenterror"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
)

func downCommand(a *app) *cobra.Command {
	var all bool
	var namespace string
	var seconds int
	c := &cobra.Command{
		Use:         "down [POD… | --all]",
		Annotations: map[string]string{annotationQuiet: "yes"},
		Short:       "Stop and remove pods gracefully",
		Long:        flags.DownHelp,
		Example:     "  # remove the pods that once left running\n  podrun down --all",
		RunE: func(c *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usage(c, errors.New("name the pods, or give --all"))
			}
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			var grace *time.Duration
			if c.Flags().Changed("grace-period") {
				if seconds < 0 {
					return usage(c, errors.New("--grace-period must not be less than 0"))
				}
				grace = new(pod.Seconds(int64(seconds)))
			}
			removed, err := agent.Down(c.Context(), a.agentOptions(), agent.DownOptions{
				Grace: grace, Unkept: all,
				Pick: func(pods []*v1.Pod) ([]*v1.Pod, error) {
					if all {
						return pods, nil
					}
					return query.FindAll(pods, namespace, names)
				},
				Waiting: func(key pod.Key, what string) {
					fmt.Fprintf(a.ErrOut, "pod %s: waiting for %s\n", key, cli.Plain(what))
				},
			})
			for _, key := range removed {
				fmt.Fprintf(a.Out, "pod %q removed\n", key.Name)
			}
			return agenterror.Down(c.Context(), c.CommandPath(), a.signals.ExitCode(), err)
		},
	}
	c.Flags().IntVar(&seconds, "grace-period", 0,
		"maximum seconds for a pod to stop, 0 to kill it at once (default: the grace period in its manifest)")
	c.Flags().BoolVar(&all, "all", false, "stop and remove all pods in all namespaces")
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the named pods")
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}
