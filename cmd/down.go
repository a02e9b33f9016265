package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent"
)

func (a *app) downCommand() *cobra.Command {
	var all bool
	var namespace string
	c := &cobra.Command{
		Use:         "down [POD… | --all]",
		Annotations: map[string]string{annotationQuiet: "yes"},
		Short:       "Stop and remove pods gracefully",
		Long: "down stops the named pods, or all of podrun's, within their grace periods, and removes them with\n" +
			"everything that was made for them. While serve runs it refuses, since serve would start them again.",
		Example: "  # remove what once left running\n  podrun down --all",
		RunE: func(c *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usage(c, errors.New("name the pods, or give --all"))
			}
			if err := needRoot(c); err != nil {
				return err
			}
			removed, err := agent.Down(c.Context(), a.agentOptions(), func(pods []*v1.Pod) ([]*v1.Pod, error) {
				if all {
					return pods, nil
				}
				return named(within(pods, namespace), names)
			})
			for _, key := range removed {
				fmt.Fprintf(a.out, "pod %q removed\n", key.Name)
			}
			if errors.Is(err, agent.ErrServing) {
				return &failure{code: exitFailed, err: err, hint: "remove the pod's manifest and serve stops it, or stop serve first"}
			}
			return a.agentError(c, err)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all pods of all namespaces")
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the named pods")
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
