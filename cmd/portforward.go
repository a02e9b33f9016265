package cmd

import (
	"context"
	"net"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/portforward"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/stream"
	"podrun.io/podrun/internal/pod"
)

func portForwardCommand(a *app) *cobra.Command {
	var namespace string
	var addresses []string
	c := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]REMOTE...",
		Short: "Forward local ports to a pod",
		Long: "port-forward listens on the port LOCAL of this machine and connects to the port REMOTE at\n" +
			"localhost inside the pod, so it also reaches processes that listen only there. REMOTE is the\n" +
			"number of a port, or its name in the manifest. LOCAL defaults to REMOTE; :REMOTE selects a free\n" +
			"local port. port-forward continues across restarts of the pod until it is interrupted. It forwards\n" +
			"TCP only.",
		Example: "  podrun port-forward web 8080:80\n  podrun port-forward web :http\n" +
			"  podrun port-forward db 5432 --address 192.0.2.1",
		Args:              argCount(2, unlimited),
		ValidArgsFunction: a.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			var all []stream.Forward
			for _, spec := range args[1:] {
				f, err := stream.ParseForward(spec)
				if err != nil {
					return usage(c, err)
				}
				all = append(all, f)
			}
			p, err := a.pods().Named(namespace, args[0])
			if err != nil {
				return err
			}
			for i := range all {
				if err := all[i].Resolve(p); err != nil {
					return usage(c, err)
				}
			}
			if _, err := a.networkNamespace(pod.KeyOf(p)); err != nil {
				return err
			}
			forwarder := &stream.Forwarder{Out: a.Out, ErrOut: a.ErrOut, Dial: a.dialer(pod.KeyOf(p))}
			return forwarder.Run(c.Context(), addresses, all)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringSliceVar(&addresses, "address", []string{"localhost"},
		"addresses to listen on: IP addresses or localhost")
	a.completeFlags(c)
	return c
}

// networkNamespace returns the network namespace of the pod's current sandbox; see
// portforward.NetworkNamespace.
func (a *app) networkNamespace(key pod.Key) (string, error) {
	p, err := query.ReadPod(a.Dirs().StatusFiles().Pod(key))
	if err != nil {
		return "", err
	}
	return portforward.NetworkNamespace(a.Dirs(), a.log, p)
}

// dialer returns a function that connects to a port in the current sandbox of the pod.
func (a *app) dialer(key pod.Key) func(context.Context, uint16) (net.Conn, error) {
	return func(ctx context.Context, port uint16) (net.Conn, error) {
		netns, err := a.networkNamespace(key)
		if err != nil {
			return nil, err
		}
		return portforward.Dial(ctx, netns, port)
	}
}
