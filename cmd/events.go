package cmd

import (
	"context"
	"encoding/json"
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
	"sigs.k8s.io/yaml"

	"podrun.io/podrun/internal/events"
	"podrun.io/podrun/internal/glance"
)

type eventsFlags struct {
	namespace     string
	allNamespaces bool
	watch         bool
	output        string
	types         []string
	noHeaders     bool
}

func (a *app) eventsCommand() *cobra.Command {
	var f eventsFlags
	c := &cobra.Command{
		Use:   "events [POD]",
		Short: "Tell what happened, newest last",
		Long: "events tells what happened to pods, and which manifests could not be used, newest last. The last 50 of a\n" +
			"pod are kept, and the last 1000 of all, also of pods that are gone.",
		Example: "  podrun events\n  podrun events web -w\n  podrun events -A --types Warning\n  podrun events web -o json",
		Args:    arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			for i, t := range f.types {
				f.types[i] = strings.ToUpper(t[:min(1, len(t))]) + strings.ToLower(t[min(1, len(t)):])
				if f.types[i] != v1.EventTypeNormal && f.types[i] != v1.EventTypeWarning {
					return usage(c, fmt.Errorf("--types %q: must be Normal or Warning", t))
				}
			}
			switch {
			case !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, f.output):
				return usage(c, fmt.Errorf("-o %q: must be wide, json, yaml or name", f.output))
			case f.allNamespaces && len(args) > 0:
				return usage(c, errors.New("a pod's events cannot be told across all namespaces"))
			}
			name := ""
			if len(args) > 0 {
				name = bareName(args[0])
			}
			return a.events(c.Context(), f, name)
		},
	}
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "events of all namespaces")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on printing what happens")
	c.Flags().StringVarP(&f.output, "output", "o", "", "form of the output: wide, json, yaml or name")
	c.Flags().StringSliceVar(&f.types, "types", nil, "events of these types only: Normal, Warning")
	c.ValidArgsFunction = a.completePods
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "leave the line of headers out")
	a.completeFlags(c)
	return c
}

func (a *app) events(ctx context.Context, f eventsFlags, name string) error {
	t := a.newTable()
	headed := f.noHeaders
	print := func(all []v1.Event) error {
		if f.output != "" && f.output != "wide" {
			return a.printEvents(f, all)
		}
		var rows [][]string
		if !headed {
			rows, headed = append(rows, eventHeader(f)), true
		}
		for i := range all {
			rows = append(rows, a.eventRow(&all[i], f, time.Now()))
		}
		return t.print(rows...)
	}
	all, err := a.chosenEvents(f, name)
	switch {
	case err != nil:
		return err
	case !f.watch && len(all) == 0 && (f.output == "" || f.output == "wide"):
		where := " in " + f.namespace + " namespace."
		if f.allNamespaces {
			where = "."
		}
		fmt.Fprintln(a.errOut, "No events found"+where)
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

// chosenEvents are the events that the flags and the name ask for.
func (a *app) chosenEvents(f eventsFlags, name string) ([]v1.Event, error) {
	records, err := events.Read(a.dirs())
	if err != nil {
		return nil, err
	}
	chosen := []v1.Event{}
	for _, r := range records {
		e := r.Event()
		named := name == "" || r.Namespace != "" && (r.Name == name || r.Name == name+"-"+strings.ToLower(r.Node))
		if named && (f.allNamespaces || e.Namespace == f.namespace) && (len(f.types) == 0 || slices.Contains(f.types, e.Type)) {
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
			if one, err = marshal(f.output, &all[i]); err != nil {
				return err
			}
			b = append(b, one...)
		}
	default:
		b, err = marshal(f.output, object)
	}
	if err != nil {
		return err
	}
	_, err = a.out.Write(b)
	return err
}

// marshal writes an object as JSON or YAML.
func marshal(form string, object any) ([]byte, error) {
	if form == "yaml" {
		return yaml.Marshal(object)
	}
	b, err := json.MarshalIndent(object, "", "    ")
	return append(b, '\n'), err
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
		message = glance.OneLine(message)
	}
	row := []string{seen, e.Type, e.Reason, strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name, strings.ReplaceAll(message, "\n", "; ")}
	if f.allNamespaces {
		row = append([]string{e.Namespace}, row...)
	}
	return row
}
