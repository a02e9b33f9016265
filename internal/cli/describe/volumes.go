package describe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/status/summary"
)

// volumes prints the volumes of a pod: the type of each and its fields, as they are in the manifest.
func (d *Printer) volumes(all []v1.Volume) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(d.Out, "Volumes:")
	for _, v := range all {
		fmt.Fprintf(d.Out, "  %s:\n", plain(v.Name))
		kinds := fieldsOf(v.VolumeSource)
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			d.line(4, "Type", kind)
			fields := fieldsOf(kinds[kind])
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				title := capital(name)
				if title == "Type" { // a host path's
					title = capital(kind) + title
				}
				d.line(4, title, valueText(fields[name]))
			}
		}
	}
}

// capital returns the name of a field with a capital letter.
func capital(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// fieldsOf returns the fields of an object by their JSON names.
func fieldsOf(object any) map[string]any {
	fields := map[string]any{}
	text, err := json.Marshal(object)
	if err != nil || json.Unmarshal(text, &fields) != nil { // cannot happen with API objects
		return nil
	}
	return fields
}

// valueText returns a value of JSON as text.
func valueText(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil { // cannot happen: it was decoded from JSON
		return ""
	}
	return string(text)
}

// tolerations returns the tolerations of a pod as kubectl describe prints them.
func tolerations(all []v1.Toleration) string {
	var lines []string
	for _, t := range all {
		line := t.Key
		if t.Value != "" {
			line += "=" + t.Value
		}
		if t.Effect != "" {
			line += ":" + string(t.Effect)
		}
		if t.Operator == v1.TolerationOpExists && t.Value == "" {
			line += " op=Exists"
		}
		if t.TolerationSeconds != nil {
			line += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// plain returns text that comes from a manifest safe for a terminal, in one line.
func plain(text string) string { return summary.PlainLine(text) }
