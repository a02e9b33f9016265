package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/cli/list"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
)

type getFlags struct {
	namespace     string
	allNamespaces bool
	selector      string
	output        string
	noHeaders     bool
	watch         bool
}

func (f *getFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces")
	c.Flags().StringVarP(&f.output, "output", "o", "", "output format: "+printers.Formats)
	c.Flags().StringVarP(&f.selector, "selector", "l", "",
		"label selector: app=web,tier!=cache, env in (a,b), !old")
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "do not print headers")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "after listing the pods, watch for changes")
}

// selection returns the pods that the flags select.
func (f *getFlags) selection() query.Selection {
	return query.Selection{Namespace: f.namespace, AllNamespaces: f.allNamespaces, Labels: f.selector}
}

// checkSelector returns an error for a label selector that cannot be used.
func (f *getFlags) checkSelector() error {
	if _, err := labels.Parse(f.selector); err != nil {
		return fmt.Errorf("--selector %q: %w", f.selector, err)
	}
	return nil
}

// listOptions returns the options of a list.
func (f *getFlags) listOptions() (list.Options, error) {
	format, err := printers.ParseFormat(f.output)
	return list.Options{Selection: f.selection(), Format: format, NoHeaders: f.noHeaders, Watch: f.watch}, err
}

func getCommand(a *app) *cobra.Command {
	var f getFlags
	c := &cobra.Command{
		Use:   "get pods [NAME...] | get volumes | get events",
		Short: "List pods, volumes or events",
		Long: "get pods lists the pods with the status that serve last published. While serve is down, it also\n" +
			"prints the age of that status. NAME is the full name of a pod or its name in the manifest. REASON\n" +
			"is the reason why a pod is not well, cut off at the width of the terminal; podrun describe prints\n" +
			"all of it. A pod that no process runs is Unowned; REASON then shows the age of its last status.\n\n" +
			"get volumes lists the volumes of persistentVolumeClaims and the pods that use them. get events is\n" +
			"the same as podrun events.",
		Example: "  podrun get pods\n  podrun get volumes -A\n" +
			"  podrun get pods -A -o wide\n  podrun get pod web -o yaml\n  podrun get pods -l app=web -w\n" +
			"  podrun get pods -o jsonpath='{.items[*].metadata.name}'\n" +
			"  podrun get pods -o custom-columns=POD:.metadata.name,IP:.status.podIP",
		Args: argCount(1, unlimited),
		RunE: func(c *cobra.Command, args []string) error {
			if query.IsVolumes(args[0]) {
				return listVolumes(a, c, f, args[1:])
			}
			if query.IsEvents(args[0]) && len(args) == 1 && f.selector == "" {
				return listEvents(a, c, eventsFlags{getFlags: f}, "")
			}
			names, err := query.PodNames(args)
			if err != nil {
				return usage(c, err)
			}
			return listPods(a, c, f, names)
		},
	}
	f.add(c)
	c.ValidArgsFunction = a.completeResources("pods", "volumes", "events")
	a.completeFlags(c)
	return c
}

// listPods lists pods for get and ps.
func listPods(a *app, c *cobra.Command, f getFlags, names []string) error {
	o, err := f.listOptions()
	switch {
	case f.allNamespaces && len(names) > 0:
		err = errors.New("a pod cannot be retrieved by name across all namespaces")
	case err == nil && f.selector != "" && len(names) > 0:
		err = errors.New("pods are selected by name or by --selector, not by both")
	case err == nil:
		err = f.checkSelector()
	}
	if err != nil {
		return usage(c, err)
	}
	return a.lister().Pods(c.Context(), o, names)
}

// listVolumes lists the volumes of persistentVolumeClaims for get.
func listVolumes(a *app, c *cobra.Command, f getFlags, names []string) error {
	if f.watch || len(names) > 0 {
		return usage(c, errors.New("volumes are listed all at once"))
	}
	o, err := f.listOptions()
	if err != nil {
		return usage(c, err)
	}
	return a.lister().Volumes(o)
}
