package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/watch"
)

type getFlags struct {
	namespace     string
	allNamespaces bool
	output        string
	watch         bool
}

func (f *getFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces")
	c.Flags().StringVarP(&f.output, "output", "o", "", "form of the output: wide, json, yaml, name or jsonpath=TEMPLATE")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on printing pods as they change")
}

func (a *app) getCommand() *cobra.Command {
	var f getFlags
	c := &cobra.Command{
		Use:   "get pods [NAME...] | get volumes",
		Short: "List pods or volumes",
		Long: "get pods lists the pods as serve saw them last; it also works while serve is down. NAME is a pod's\n" +
			"full name, or its name in the manifest.\n\n" +
			"get volumes lists what persistentVolumeClaims stand for, and which pods have them.",
		Example: "  podrun get pods\n  podrun get volumes -A\n  podrun get pods -A -o wide\n  podrun get pod web -o yaml\n" +
			"  podrun get pods -o jsonpath='{.items[*].metadata.name}'",
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if isVolumes(args[0]) {
				return a.getVolumes(c, f, args[1:])
			}
			names, err := podNames(args)
			if err != nil {
				return usage(c, err)
			}
			return a.get(c, f, names)
		},
	}
	f.add(c)
	return c
}

func (a *app) psCommand() *cobra.Command {
	var f getFlags
	c := &cobra.Command{
		Use:     "ps [NAME...]",
		Short:   "List pods; the same as get pods",
		Example: "  podrun ps -A",
		RunE:    func(c *cobra.Command, args []string) error { return a.get(c, f, args) },
	}
	f.add(c)
	return c
}

// podNames takes `pods NAME...` and `pods/NAME...`.
func podNames(args []string) ([]string, error) {
	if !strings.Contains(args[0], "/") {
		if !isPods(args[0]) {
			return nil, fmt.Errorf("unknown resource type %q: podrun has pods and volumes", args[0])
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

func isPods(kind string) bool { return kind == "pods" || kind == "pod" || kind == "po" }

func (a *app) get(c *cobra.Command, f getFlags, names []string) error {
	if f.allNamespaces && len(names) > 0 {
		return usage(c, errors.New("a pod cannot be got by name across all namespaces"))
	}
	v, err := newView(a.out, f, len(names) == 1)
	if err != nil {
		return usage(c, err)
	}
	pods, err := a.selected(f, names)
	if err != nil {
		return err
	}
	if v.kind == "" || v.kind == "wide" {
		a.warnOfManifests()
	}
	if len(pods) == 0 && !f.watch && (v.kind == "" || v.kind == "wide") {
		where := " in " + f.namespace + " namespace."
		if f.allNamespaces {
			where = ""
		}
		fmt.Fprintln(a.errOut, "No resources found"+where)
		return nil
	}
	if !f.watch {
		return v.list(pods)
	}
	return a.watch(c.Context(), f, names, v)
}

// warnOfManifests says which manifests serve cannot use, for one that was never good has no pod to show it.
func (a *app) warnOfManifests() {
	const most = 5
	problems, err := agent.ManifestProblems(a.dirs())
	if err != nil {
		fmt.Fprintln(a.errOut, "warning:", err)
	}
	for i, p := range problems {
		if i == most {
			fmt.Fprintf(a.errOut, "warning: %s more\n", count(len(problems)-most, "problem"))
			break
		}
		first, more, _ := strings.Cut(p.Error, "\n")
		if more != "" {
			first += " …"
		}
		fmt.Fprintln(a.errOut, "warning: manifest cannot be used:", first)
	}
}

func (a *app) selected(f getFlags, names []string) ([]*v1.Pod, error) {
	pods, err := readPods(a.dirs())
	if err != nil {
		return nil, err
	}
	if !f.allNamespaces {
		pods = within(pods, f.namespace)
	}
	if len(names) == 0 {
		return pods, nil
	}
	var chosen []*v1.Pod
	var failures []error
	for _, name := range names {
		p, err := find(pods, name)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		chosen = append(chosen, p)
	}
	return chosen, errors.Join(failures...)
}

// watchPoll is how often the status directory is looked at when changes are not told.
const watchPoll = 2 * time.Second

// watch prints every pod, and again whenever it has changed, until ctx ends.
func (a *app) watch(ctx context.Context, f getFlags, names []string, v *view) error {
	shown := map[pod.Key]shownPod{}
	return a.eachChange(ctx, func() (bool, error) {
		pods, err := a.selected(f, names)
		if err != nil && len(shown) == 0 {
			return false, err
		}
		return false, v.changes(pods, shown)
	})
}

// eachChange calls look now and whenever a status file may have changed, until it says that it is done.
func (a *app) eachChange(ctx context.Context, look func() (done bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	w := watch.New(a.log)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = w.Run(ctx) })
	ticker := time.NewTicker(watchPoll)
	defer ticker.Stop()
	for {
		// Again each time: the directory may not be there yet, or be a new one.
		_ = w.Add(a.dirs().Statuses())
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.Events():
		case <-ticker.C:
		}
	}
}

// shownPod is what was printed of a pod last.
type shownPod struct {
	pod  *v1.Pod
	text []byte
}

// view prints pods in one form.
type view struct {
	kind    string
	single  bool // one pod by its name: it and not a list
	columns columns
	table   table
	path    *jsonPath
	headed  bool
}

func newView(out interface{ Write([]byte) (int, error) }, f getFlags, single bool) (*view, error) {
	v := &view{kind: f.output, single: single, table: table{out: out},
		columns: columns{namespace: f.allNamespaces, wide: f.output == "wide"}}
	kind, template, ok := strings.Cut(f.output, "=")
	switch {
	case ok && kind == "jsonpath":
		path, err := parseJSONPath(template)
		if err != nil {
			return nil, fmt.Errorf("-o %s: %w", f.output, err)
		}
		v.kind, v.path = kind, path
	case f.output == "", f.output == "wide", f.output == "json", f.output == "yaml", f.output == "name":
	default:
		return nil, fmt.Errorf("-o %q: must be wide, json, yaml, name or jsonpath=TEMPLATE", f.output)
	}
	return v, nil
}

// list prints pods once.
func (v *view) list(pods []*v1.Pod) error {
	if v.kind == "" || v.kind == "wide" {
		return v.rows(pods)
	}
	if v.kind == "name" {
		for _, p := range pods {
			if err := v.object(p); err != nil {
				return err
			}
		}
		return nil
	}
	if v.single && len(pods) == 1 {
		return v.object(pods[0])
	}
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return v.object(list)
}

func (v *view) rows(pods []*v1.Pod) error {
	var rows [][]string
	if !v.headed {
		rows = append(rows, v.columns.header())
		v.headed = true
	}
	for _, p := range pods {
		rows = append(rows, v.columns.row(p, time.Now()))
	}
	return v.table.print(rows...)
}

// object prints one pod, or a list of them.
func (v *view) object(object any) error {
	var b []byte
	var err error
	switch v.kind {
	case "json":
		b, err = json.MarshalIndent(object, "", "    ")
		b = append(b, '\n')
	case "yaml":
		b, err = yaml.Marshal(object)
	case "jsonpath":
		b, err = v.path.of(object)
	case "name":
		b = []byte("pod/" + object.(*v1.Pod).Name + "\n")
	}
	if err != nil {
		return err
	}
	_, err = v.table.out.Write(b)
	return err
}

// changes prints the pods that are not as shown, and a last row of those that are gone.
func (v *view) changes(pods []*v1.Pod, shown map[pod.Key]shownPod) error {
	now := map[pod.Key]bool{}
	var changed []*v1.Pod
	for _, p := range pods {
		key := pod.KeyOf(p)
		now[key] = true
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, shown[key].text) {
			shown[key] = shownPod{p, text}
			changed = append(changed, p)
		}
	}
	for key, s := range shown {
		if !now[key] {
			delete(shown, key)
			s.pod.Status = v1.PodStatus{Phase: "Deleted", StartTime: s.pod.Status.StartTime, PodIP: s.pod.Status.PodIP}
			s.pod.DeletionTimestamp = nil
			changed = append(changed, s.pod)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if v.kind == "" || v.kind == "wide" {
		return v.rows(changed)
	}
	for _, p := range changed {
		if err := v.object(p); err != nil {
			return err
		}
	}
	return nil
}
