package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
)

// outputForms are the values of -o, for help and error messages.
const outputForms = "wide, json, yaml, name, jsonpath=TEMPLATE, go-template=TEMPLATE,\n" +
	"custom-columns=HEADER:PATH,…, or a file: jsonpath-file=, go-template-file=, custom-columns-file="

// form is an output format for objects.
type form struct {
	kind string // wide, json, yaml, name or the kind of a template; "" is a table
	// text renders an object with the template; nil if the format has none.
	text func(object any) ([]byte, error)
	// custom are the columns of custom-columns.
	custom []customColumn
}

// parseForm parses the value of -o.
func parseForm(output string) (form, error) {
	if slices.Contains([]string{"", "wide", "json", "yaml", "name"}, output) {
		return form{kind: output}, nil
	}
	kind, template, ok := strings.Cut(output, "=")
	if !ok {
		return form{}, fmt.Errorf("-o %q: must be %s", output, strings.ReplaceAll(outputForms, "\n", " "))
	}
	if file, is := strings.CutSuffix(kind, "-file"); is {
		b, err := os.ReadFile(template)
		if err != nil {
			return form{}, fmt.Errorf("-o %s: %w", output, err)
		}
		kind, template = file, string(b)
		if kind == "custom-columns" {
			if template, err = columnsFile(template); err != nil {
				return form{}, fmt.Errorf("-o %s: %w", output, err)
			}
		}
	}
	f := form{kind: kind}
	var err error
	switch kind {
	case "jsonpath":
		f.text, err = parseJSONPath(template)
	case "go-template":
		f.text, err = parseGoTemplate(template)
	case "custom-columns":
		f.custom, err = parseColumns(template)
	default:
		err = fmt.Errorf("must be %s", strings.ReplaceAll(outputForms, "\n", " "))
	}
	if err != nil {
		return form{}, fmt.Errorf("-o %s: %w", output, err)
	}
	return f, nil
}

// tabular reports whether the format is one of the standard tables, which are for people.
func (f form) tabular() bool { return f.kind == "" || f.kind == "wide" }

// marshal renders an object as YAML, JSON or with the template. It does not handle tables and
// names.
func (f form) marshal(object any) ([]byte, error) {
	switch f.kind {
	case "yaml":
		return yaml.Marshal(object)
	case "json":
		b, err := json.MarshalIndent(object, "", "    ")
		return append(b, '\n'), err
	}
	b, err := f.text(object)
	if err != nil {
		return nil, fmt.Errorf("-o %s: %w", f.kind, err)
	}
	return b, nil
}

// headers returns the headers of custom-columns.
func (f form) headers() []string {
	var header []string
	for _, c := range f.custom {
		header = append(header, c.header)
	}
	return header
}

// view prints pods in one format.
type view struct {
	form
	single  bool // print a pod that was named as an object, not as a list
	columns columns
	table   table
	headed  bool
}

// newView returns a view with the format that the flags select.
func (a *app) newView(f getFlags, single bool) (*view, error) {
	in, err := parseForm(f.output)
	if err != nil {
		return nil, err
	}
	v := &view{
		form:    in,
		single:  single,
		table:   a.newTable(),
		headed:  f.noHeaders,
		columns: columns{namespace: f.allNamespaces, wide: f.output == "wide"},
	}
	if v.tabular() {
		v.table.paint = map[int]func(string) string{v.columns.status(): a.statusColour()}
	}
	return v, nil
}

// list prints pods once.
func (v *view) list(pods []*v1.Pod) error {
	if v.tabular() || v.custom != nil {
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
	header := v.columns.header()
	if v.custom != nil {
		header = v.headers()
	}
	if !v.headed {
		rows = append(rows, header)
		v.headed = true
	}
	for _, p := range pods {
		if v.custom == nil {
			rows = append(rows, v.columns.row(p, time.Now()))
			continue
		}
		row, err := customRow(v.custom, p)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return v.table.print(rows...)
}

// object prints one pod, or a list of pods.
func (v *view) object(object any) error {
	var b []byte
	var err error
	if p, ok := object.(*v1.Pod); ok && v.kind == "name" {
		b = []byte("pod/" + p.Name + "\n")
	} else {
		b, err = v.marshal(object)
	}
	if err != nil {
		return err
	}
	_, err = cli.ForTerminal(v.table.out).Write(b)
	return err
}

// changes prints the pods that differ from those in shown, and a last entry with the phase Deleted
// for each pod that was removed. It updates shown.
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
	if v.tabular() || v.custom != nil {
		return v.rows(changed)
	}
	for _, p := range changed {
		if err := v.object(p); err != nil {
			return err
		}
	}
	return nil
}
