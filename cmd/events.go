package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/event"
)

type eventsFlags struct {
	namespace     string
	allNamespaces bool
	watch         bool
	output        string
	types         []string
	noHeaders     bool
	of            string
	form          form
}

func (a *app) eventsCommand() *cobra.Command {
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
			name := bareName(f.of)
			if len(args) > 0 {
				name = bareName(args[0])
			}
			if len(args) > 0 && f.of != "" {
				return usage(c, errors.New("give a pod or --for, not both"))
			}
			if err := f.check(name); err != nil {
				return usage(c, err)
			}
			return a.events(c.Context(), f, name)
		},
	}
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "events of all namespaces")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "after listing the events, watch for new ones")
	c.Flags().StringVarP(&f.output, "output", "o", "", "output format: "+outputForms)
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
	f.form, err = parseForm(f.output)
	return err
}

func (a *app) events(ctx context.Context, f eventsFlags, name string) error {
	t := a.newTable()
	headed := f.noHeaders
	print := func(all []v1.Event) error {
		if !f.form.tabular() && f.form.custom == nil {
			return a.printEvents(f, all)
		}
		rows, err := a.eventRows(f, all, !headed)
		headed = true
		if err != nil {
			return err
		}
		return t.print(rows...)
	}
	all, err := a.chosenEvents(f, name)
	switch {
	case err != nil:
		return err
	case !f.watch && len(all) == 0 && f.form.tabular():
		where := " in " + f.namespace + " namespace."
		if f.allNamespaces {
			where = "."
		}
		fmt.Fprintln(a.ErrOut, "No events found"+where)
		return nil
	case !f.watch:
		return print(all)
	}
	shown := map[string]int32{}
	return a.eachChange(ctx, filepath.Dir(a.dirs().Events()), func() (bool, error) {
		all, err := a.chosenEvents(f, name)
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
		return false, print(fresh)
	})
}

// chosenEvents returns the events that the flags and the name of the pod select.
func (a *app) chosenEvents(f eventsFlags, name string) ([]v1.Event, error) {
	records, err := event.Read(a.dirs())
	if err != nil {
		return nil, err
	}
	chosen, nodes := []v1.Event{}, map[string]bool{}
	for _, r := range records {
		nodes[strings.ToLower(r.Node)] = true // down records no node name in its events
	}
	for _, r := range records {
		e := r.Event()
		node, suffixed := strings.CutPrefix(r.Name, name+"-")
		named := name == "" || r.Namespace != "" && (r.Name == name || suffixed && node != "" && nodes[node])
		if named && (f.allNamespaces || e.Namespace == f.namespace) &&
			(len(f.types) == 0 || slices.Contains(f.types, e.Type)) {
			chosen = append(chosen, e)
		}
	}
	return chosen, nil
}

func (a *app) printEvents(f eventsFlags, all []v1.Event) error {
	var b []byte
	var err error
	var object any = &v1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: all}
	switch {
	case f.output == "name":
		for _, e := range all {
			b = append(b, "event/"+e.Name+"\n"...)
		}
	case f.watch:
		for i := range all {
			var one []byte
			if one, err = f.form.marshal(&all[i]); err != nil {
				return err
			}
			b = append(b, one...)
		}
	default:
		b, err = f.form.marshal(object)
	}
	if err != nil {
		return err
	}
	_, err = cli.ForTerminal(a.Out).Write(b)
	return err
}

// eventRows returns events as rows of a table, after the headers if header is true.
func (a *app) eventRows(f eventsFlags, all []v1.Event, header bool) (rows [][]string, err error) {
	if header && f.form.custom != nil {
		rows = append(rows, f.form.headers())
	} else if header {
		rows = append(rows, eventHeader(f))
	}
	for i := range all {
		row := a.eventRow(&all[i], f, time.Now())
		if f.form.custom != nil {
			if row, err = customRow(f.form.custom, &all[i]); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func eventHeader(f eventsFlags) []string {
	header := []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}
	if f.allNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	return header
}

func (a *app) eventRow(e *v1.Event, f eventsFlags, now time.Time) []string {
	seen := age(e.LastTimestamp.Time, now)
	if e.Count > 1 {
		seen += " (x" + strconv.Itoa(int(e.Count)) + " over " + age(e.FirstTimestamp.Time, now) + ")"
	}
	message := e.Message
	if f.output != "wide" {
		message = summary.OneLine(message)
	}
	row := []string{
		seen,
		e.Type,
		e.Reason,
		strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name,
		strings.ReplaceAll(message, "\n", "; "),
	}
	if f.allNamespaces {
		row = append([]string{e.Namespace}, row...)
	}
	return row
}
