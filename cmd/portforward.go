package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/portforward"
	"podrun.io/podrun/internal/cli/stream"
	"podrun.io/podrun/internal/pod"
)

func portForwardCommand(a *app) *cobra.Command {
	var namespace string
	var addresses []string
	c := &cobra.Command{
		Use:               "port-forward POD [LOCAL:]REMOTE...",
		Short:             "Forward local ports to a pod",
		Long:              portforward.Help,
		Example:           portforward.Example,
		Args:              argCount(2, unlimited),
		ValidArgsFunction: a.completePodAndPorts,
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			all, err := stream.ParseForwards(addresses, args[1:])
			if err != nil {
				return usage(c, err)
			}
			p, err := a.pods().AnyNamed(namespace, args[0])
			if err != nil {
				return err
			}
			for i := range all {
				if err := all[i].Resolve(p); err != nil {
					return usage(c, err)
				}
			}
			to := portforward.Pod{Dirs: a.Dirs(), Log: a.log, Key: pod.KeyOf(p)}
			if _, err := to.NetworkNamespace(); err != nil {
				return err
			}
			forwarder := &stream.Forwarder{
				Out: a.Out, ErrOut: a.ErrOut, Dial: to.Dial,
				Lost: func(ctx context.Context) error { return to.Lost(ctx, a.pods()) },
			}
			return forwarder.Run(c.Context(), addresses, all)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringSliceVar(&addresses, "address", []string{"localhost"},
		"addresses to listen on: IP addresses or localhost")
	a.completeFlags(c)
	return c
}
