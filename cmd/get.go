package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/problems"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
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
		Args: argCount(1, many),
		RunE: func(c *cobra.Command, args []string) error {
			if isVolumes(args[0]) {
				return getVolumes(a, c, f, args[1:])
			}
			if isEvents(args[0]) && len(args) == 1 && f.selector == "" {
				e := eventsFlags{
					namespace:     f.namespace,
					allNamespaces: f.allNamespaces,
					watch:         f.watch,
					output:        f.output,
					noHeaders:     f.noHeaders,
				}
				if err := e.check(""); err != nil {
					return usage(c, err)
				}
				return runEvents(a, c.Context(), e, "")
			}
			names, err := podNames(args)
			if err != nil {
				return usage(c, err)
			}
			return runGet(a, c, f, names)
		},
	}
	f.add(c)
	c.ValidArgsFunction = a.completeResources("pods", "volumes", "events")
	a.completeFlags(c)
	return c
}

func psCommand(a *app) *cobra.Command {
	var f getFlags
	c := &cobra.Command{
		Use:     "ps [NAME...]",
		Short:   "List pods; the same as get pods",
		Example: "  podrun ps -A",
		RunE:    func(c *cobra.Command, args []string) error { return runGet(a, c, f, args) },
	}
	f.add(c)
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}

// podNames returns the names in the arguments `pods NAME...` or `pods/NAME...`.
func podNames(args []string) ([]string, error) {
	if !strings.Contains(args[0], "/") {
		if !isPods(args[0]) {
			return nil, fmt.Errorf(
				"unknown resource type %q: podrun has pods, volumes and events; podrun images lists images", args[0])
		}
		return args[1:], nil
	}
	var names []string
	for _, arg := range args {
		kind, name, _ := strings.Cut(arg, "/")
		if !isPods(kind) || name == "" {
			return nil, fmt.Errorf("unknown resource %q: must be pod/NAME", arg)
		}
		names = append(names, name)
	}
	return names, nil
}

func isEvents(kind string) bool { return kind == "events" || kind == "event" || kind == "ev" }

func isPods(kind string) bool { return kind == "pods" || kind == "pod" || kind == "po" }

func runGet(a *app, c *cobra.Command, f getFlags, names []string) error {
	if f.allNamespaces && len(names) > 0 {
		return usage(c, errors.New("a pod cannot be retrieved by name across all namespaces"))
	}
	format, err := printers.ParseFormat(f.output)
	if err != nil {
		return usage(c, err)
	}
	v := printers.NewPods(a.Out, printers.PodOptions{
		Format: format, Single: len(names) == 1, NoHeaders: f.noHeaders, AllNamespaces: f.allNamespaces,
	})
	switch {
	case f.selector != "" && len(names) > 0:
		return usage(c, errors.New("pods are selected by name or by --selector, not by both"))
	case f.selector != "":
		if _, err := labels.Parse(f.selector); err != nil {
			return usage(c, fmt.Errorf("--selector %q: %w", f.selector, err))
		}
	}
	pods, missing := a.pods().Select(f.selection(), names)
	if v.Tabular() {
		a.warnOfAge(pods)
		a.warnOfManifests() // also if a pod does not exist: a manifest error may be the reason
	}
	if missing != nil && len(pods) == 0 {
		return missing
	}
	if len(pods) == 0 && !f.watch && v.Tabular() {
		where := " in " + f.namespace + " namespace."
		if f.allNamespaces {
			where = ""
		}
		fmt.Fprintln(a.ErrOut, "No resources found"+where)
		return nil
	}
	if !f.watch {
		return errors.Join(v.List(pods), missing) // as kubectl, print the pods that exist
	}
	if missing != nil {
		return missing
	}
	return watchPods(a, c.Context(), f, names, v)
}

// warnOfAge warns how old the statuses are if serve does not run, unless other processes own all
// pods shown.
func (a *app) warnOfAge(shown []*v1.Pod) {
	owners := owner.Reader{Dirs: a.Dirs()}
	seen, alive := owners.LastSeen()
	unkept := func(p *v1.Pod) bool {
		kept, _ := owners.Kept(pod.KeyOf(p))
		return !kept
	}
	if alive || seen.IsZero() || len(shown) > 0 && !slices.ContainsFunc(shown, unkept) {
		return
	}
	fmt.Fprintf(a.ErrOut, "warning: podrun serve is not running; this is how pods were %s ago\n",
		printers.Age(seen, time.Now()))
}

// warnOfManifests warns about manifests that serve cannot use. A manifest that was never valid has
// no pod whose status could show the error.
func (a *app) warnOfManifests() {
	const most = 5
	all, err := problems.Read(a.Dirs())
	if err != nil {
		fmt.Fprintln(a.ErrOut, "warning:", err)
	}
	for i, p := range all {
		if i == most {
			fmt.Fprintf(a.ErrOut, "warning: %s more\n", printers.Count(len(all)-most, "problem"))
			break
		}
		first, more, _ := strings.Cut(p.Error, "\n")
		if more != "" {
			first += " …"
		}
		fmt.Fprintln(a.ErrOut, "warning: manifest cannot be used:", first)
	}
}

// watch prints all pods, and each pod again whenever it has changed, until ctx ends.
func watchPods(a *app, ctx context.Context, f getFlags, names []string, v *printers.Pods) error {
	return a.pods().OnChange(ctx, a.Dirs().StatusFiles().Dir(), func() (bool, error) {
		pods, err := a.pods().Select(f.selection(), names)
		var absent *query.NotFoundError
		switch {
		case err != nil && !v.Shown():
			return false, err
		case err != nil && !errors.As(err, &absent):
			a.log.Debug("reading pods failed", "err", err)
			return false, nil // a failed read does not mean that the pods are removed
		}
		return false, v.Changes(pods)
	})
}
