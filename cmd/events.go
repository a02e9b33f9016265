package cmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
)

type eventsFlags struct {
	getFlags
	types []string
	pod   string
}

func eventsCommand(a *app) *cobra.Command {
	var f eventsFlags
	c := &cobra.Command{
		Use:   "events [POD]",
		Short: "Show events, oldest first",
		Long: "events shows the events of pods and of manifests that cannot be used, oldest first. podrun keeps\n" +
			"the last 50 events of each pod and the last 1000 of all pods, including removed pods.",
		Example: "  podrun events\n  podrun events web -w\n" +
			"  podrun events -A --types Warning\n  podrun events web -o json",
		Args: argCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			name := query.BareName(f.pod)
			if len(args) > 0 {
				name = query.BareName(args[0])
			}
			if len(args) > 0 && f.pod != "" {
				return usage(c, errors.New("give a pod or --for, not both"))
			}
			return listEvents(a, c, f, name)
		},
	}
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "events of all namespaces")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "after listing the events, watch for new ones")
	c.Flags().StringVarP(&f.output, "output", "o", "", "output format: "+printers.Formats)
	c.Flags().StringVar(&f.pod, "for", "",
		"show only the events of a pod, given as pod/NAME; the same as the argument POD")
	c.Flags().StringSliceVar(&f.types, "types", nil, "show only events of these types: Normal, Warning")
	c.ValidArgsFunction = a.completePods
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "do not print headers")
	_ = c.RegisterFlagCompletionFunc("for",
		func(c *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return a.completePods(c, nil, text)
		})
	a.completeFlags(c) // it does not replace the completion of --for
	return c
}

// check checks and normalizes the flags.
func (f *eventsFlags) check(name string) error {
	for i, t := range f.types {
		f.types[i] = strings.ToUpper(t[:min(1, len(t))]) + strings.ToLower(t[min(1, len(t)):])
		if f.types[i] != v1.EventTypeNormal && f.types[i] != v1.EventTypeWarning {
			return fmt.Errorf("--types %q: must be Normal or Warning", t)
		}
	}
	if f.allNamespaces && name != "" {
		return errors.New("the events of one pod cannot be shown across all namespaces")
	}
	return nil
}

// listEvents lists events for get and events.
func listEvents(a *app, c *cobra.Command, f eventsFlags, name string) error {
	err := f.check(name)
	if err != nil {
		return usage(c, err)
	}
	o, err := f.listOptions()
	if err != nil {
		return usage(c, err)
	}
	return a.lister().Events(c.Context(), o, name, f.types)
}
