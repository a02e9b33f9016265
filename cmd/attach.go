package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/logs"
)

func (a *app) attachCommand() *cobra.Command {
	var namespace, container string
	var stdin, tty bool
	c := &cobra.Command{
		Use:   "attach POD [-c CONTAINER]",
		Short: "Print what a running container writes from now on",
		Long: "attach prints what a running container writes from now on, its standard error to standard error, and ends\n" +
			"when the container does. To interrupt it leaves the container alone.\n\n" +
			"podrun's containers have no standard input; podrun exec -it runs a shell beside them.",
		Example:           "  podrun attach web\n  podrun attach web -c app",
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := a.podNamed(namespace, args[0])
			if err != nil {
				return err
			}
			r, err := a.choose(p, container)
			if err != nil {
				return err
			}
			name := r.Container.Name
			switch {
			case r.Status == nil || r.Status.State.Running == nil:
				return fmt.Errorf("container %q in pod %q is not running", name, p.Name)
			case stdin:
				return &failure{code: exitFailed, err: fmt.Errorf("container %q in pod %q has no standard input", name, p.Name),
					hint: "podrun exec -it " + shortName(p) + " -c " + name + " -- sh runs a shell in it"}
			case tty:
				fmt.Fprintf(a.errOut, "Unable to use a TTY: container %s has none\n", name)
			}
			inst, err := instance(p, r, false)
			if err != nil {
				return err
			}
			return a.readLog(c.Context(), inst, logs.ReadOptions{Follow: true, Tail: new(0)}, a.out, a.errOut)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "the pod's namespace")
	c.Flags().StringVarP(&container, "container", "c", "", "the container (default: the pod's first)")
	c.Flags().BoolVarP(&stdin, "stdin", "i", false, "pass standard input to the container, which fails: it has none")
	c.Flags().BoolVarP(&tty, "tty", "t", false, "standard input is a terminal; it has no effect")
	a.completeFlags(c)
	return c
}
