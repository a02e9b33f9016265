package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
)

type eventsFlags struct {
	namespace     string
	allNamespaces bool
	watch         bool
	output        string
	types         []string
	noHeaders     bool
	of            string
	form          printers.Format
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
			name := query.BareName(f.of)
			if len(args) > 0 {
				name = query.BareName(args[0])
			}
			if len(args) > 0 && f.of != "" {
				return usage(c, errors.New("give a pod or --for, not both"))
			}
			if err := f.check(name); err != nil {
				return usage(c, err)
			}
			return runEvents(a, c.Context(), f, name)
		},
	}
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "events of all namespaces")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "after listing the events, watch for new ones")
	c.Flags().StringVarP(&f.output, "output", "o", "", "output format: "+printers.Formats)
	c.Flags().StringVar(&f.of, "for", "",
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

// check checks and normalizes the flags, and parses --output into form.
func (f *eventsFlags) check(name string) (err error) {
	for i, t := range f.types {
		f.types[i] = strings.ToUpper(t[:min(1, len(t))]) + strings.ToLower(t[min(1, len(t)):])
		if f.types[i] != v1.EventTypeNormal && f.types[i] != v1.EventTypeWarning {
			return fmt.Errorf("--types %q: must be Normal or Warning", t)
		}
	}
	if f.allNamespaces && name != "" {
		return errors.New("the events of one pod cannot be shown across all namespaces")
	}
	f.form, err = printers.ParseFormat(f.output)
	return err
}

func runEvents(a *app, ctx context.Context, f eventsFlags, name string) error {
	printer := printers.NewEvents(a.Out, printers.EventOptions{
		Format: f.form, NoHeaders: f.noHeaders, AllNamespaces: f.allNamespaces, Watch: f.watch,
	})
	selection := query.EventSelection{
		Namespace: f.namespace, AllNamespaces: f.allNamespaces, Types: f.types, Pod: name,
	}
	all, err := query.Events(a.Dirs(), selection)
	switch {
	case err != nil:
		return err
	case !f.watch && len(all) == 0 && f.form.Tabular():
		where := " in " + f.namespace + " namespace."
		if f.allNamespaces {
			where = "."
		}
		fmt.Fprintln(a.ErrOut, "No events found"+where)
		return nil
	case !f.watch:
		return printer.Print(all)
	}
	shown := map[string]int32{}
	return a.pods().OnChange(ctx, filepath.Dir(a.Dirs().Events()), func() (bool, error) {
		all, err := query.Events(a.Dirs(), selection)
		if err != nil {
			return false, err
		}
		var fresh []v1.Event
		for _, e := range all {
			if shown[e.Name] != e.Count {
				shown[e.Name] = e.Count
				fresh = append(fresh, e)
			}
		}
		if len(fresh) == 0 {
			return false, nil
		}
		return false, printer.Print(fresh)
	})
}
