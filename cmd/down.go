package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
)

func (a *app) downCommand() *cobra.Command {
	var all bool
	var namespace string
	var seconds int
	c := &cobra.Command{
		Use:         "down [POD… | --all]",
		Annotations: map[string]string{annotationQuiet: "yes"},
		Short:       "Stop and remove pods gracefully",
		Long: "down stops the named pods, or all of podrun's, within their grace periods, and removes them with\n" +
			"everything that was made for them. It says what it waits for if that takes long. An interrupt ends it within\n" +
			"a second, with exit code 130, or 143 by SIGTERM: call it again, with a shorter --grace-period where pods take\n" +
			"too long to end. It refuses pods that serve keeps, since serve would start them again, and those that a once\n" +
			"has; with --all it names them and removes the others.",
		Example: "  # remove what once left running\n  podrun down --all",
		RunE: func(c *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usage(c, errors.New("name the pods, or give --all"))
			}
			if err := needRoot(c); err != nil {
				return err
			}
			var grace *time.Duration
			if c.Flags().Changed("grace-period") {
				if seconds < 0 {
					return usage(c, errors.New("--grace-period must not be less than 0"))
				}
				grace = new(time.Duration(seconds) * time.Second)
			}
			removed, err := agent.Down(c.Context(), a.agentOptions(), agent.DownOptions{
				Grace: grace, Unkept: all,
				Pick: func(pods []*v1.Pod) ([]*v1.Pod, error) {
					if all {
						return pods, nil
					}
					return named(within(pods, namespace), names)
				},
				Waiting: func(key pod.Key, what string) {
					fmt.Fprintf(a.errOut, "pod %s: waiting for %s\n", key, cli.Plain(what))
				},
			})
			for _, key := range removed {
				fmt.Fprintf(a.out, "pod %q removed\n", key.Name)
			}
			if c.Context().Err() != nil && errors.Is(err, context.Canceled) {
				return &failure{code: a.interrupted(), err: errors.New("interrupted; call it again to remove what is left")}
			}
			if owned := (*agent.OwnedError)(nil); errors.Is(err, agent.ErrServing) && (!errors.As(err, &owned) || owned.Serve) {
				return &failure{code: exitFailed, err: err, hint: "remove the pod's manifest and serve stops it, or end the process that has the pod first"}
			}
			return a.agentError(c, err)
		},
	}
	c.Flags().IntVar(&seconds, "grace-period", 0, "most seconds that a pod is given to end, 0 being none at all (default: as its manifest says)")
	c.Flags().BoolVar(&all, "all", false, "all pods of all namespaces")
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the named pods")
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}

func named(pods []*v1.Pod, names []string) ([]*v1.Pod, error) {
	var chosen []*v1.Pod
	for _, name := range names {
		p, err := find(pods, name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, p)
	}
	return chosen, nil
}
