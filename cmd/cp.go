package cmd

import (
	"cmp"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/cp"
	"podrun.io/podrun/internal/pod"
)

func cpCommand(a *app) *cobra.Command {
	var namespace, container string
	var noPreserve bool
	c := &cobra.Command{
		Use:               "cp SOURCE TARGET",
		Short:             "Copy files into a container or out of it",
		Long:              cp.Help,
		Example:           cp.Example,
		Args:              argCount(2, 2),
		ValidArgsFunction: a.completeFileSpecs,
		RunE: func(c *cobra.Command, args []string) error {
			from, to, err := cp.Pair(args[0], args[1])
			if err != nil {
				return usage(c, err)
			}
			of := pod.Key{Namespace: cmp.Or(from.Namespace, to.Namespace, namespace), Name: from.Pod + to.Pod}
			in, err := openContainer(a, c, a.pods().Named, of, container)
			if err != nil {
				return err
			}
			defer in.Close()
			copier := cp.Copier{Runtime: in.Driver, ErrOut: a.ErrOut, Preserve: !noPreserve}
			return copier.Copy(c.Context(), cp.Instance{
				Key: pod.KeyOf(in.Pod), Container: in.Role.Container.Name, ID: in.Role.InstanceID(),
			}, from, to)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVarP(&container, "container", "c", "", "container of the pod; by default the first one")
	c.Flags().BoolVar(&noPreserve, "no-preserve", false,
		"do not give files in the container the owner and mode that they have here")
	a.completeFlags(c)
	return c
}
