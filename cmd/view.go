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

	"podrun.io/podrun/internal/pod"
)

// outputForms are what -o may be.
const outputForms = "wide, json, yaml, name, jsonpath=TEMPLATE, go-template=TEMPLATE,\n" +
	"custom-columns=HEADER:PATH,…, or a file: jsonpath-file=, go-template-file=, custom-columns-file="

// view prints pods in one form.
type view struct {
	kind    string
	single  bool // one pod by its name: it and not a list
	columns columns
	table   table
	// text makes an object's text by a template; nil: the form has none.
	text func(object any) ([]byte, error)
	// custom are the columns of custom-columns.
	custom []customColumn
	headed bool
}

// newView makes the view that the flags ask for.
func (a *app) newView(f getFlags, single bool) (*view, error) {
	v := &view{kind: f.output, single: single, table: a.newTable(), headed: f.noHeaders,
		columns: columns{namespace: f.allNamespaces, wide: f.output == "wide"}}
	if slices.Contains([]string{"", "wide", "json", "yaml", "name"}, f.output) {
		if v.tabular() {
			v.table.paint = map[int]func(string) string{v.columns.status(): a.statusColour()}
		}
		return v, nil
	}
	kind, template, ok := strings.Cut(f.output, "=")
	if !ok {
		return nil, fmt.Errorf("-o %q: must be %s", f.output, strings.ReplaceAll(outputForms, "\n", " "))
	}
	if file, is := strings.CutSuffix(kind, "-file"); is {
		b, err := os.ReadFile(template)
		if err != nil {
			return nil, fmt.Errorf("-o %s: %w", f.output, err)
		}
		kind, template = file, string(b)
		if kind == "custom-columns" {
			if template, err = columnsFile(template); err != nil {
				return nil, fmt.Errorf("-o %s: %w", f.output, err)
			}
		}
	}
	var err error
	v.kind = kind
	switch kind {
	case "jsonpath":
		v.text, err = parseJSONPath(template)
	case "go-template":
		v.text, err = parseGoTemplate(template)
	case "custom-columns":
		v.custom, err = parseColumns(template)
	default:
		err = fmt.Errorf("must be %s", strings.ReplaceAll(outputForms, "\n", " "))
	}
	if err != nil {
		return nil, fmt.Errorf("-o %s: %w", f.output, err)
	}
	return v, nil
}

// tabular reports that the view is for people.
func (v *view) tabular() bool { return v.kind == "" || v.kind == "wide" }

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
		header = nil
		for _, c := range v.custom {
			header = append(header, c.header)
		}
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
	case "name":
		b = []byte("pod/" + object.(*v1.Pod).Name + "\n")
	default:
		if b, err = v.text(object); err != nil {
			err = fmt.Errorf("-o %s: %w", v.kind, err)
		}
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
