// Package printers prints pods, events, volumes, images and changes in the formats of kubectl get:
// tables, custom columns, templates, YAML, JSON and names.
//
// Begin reading at Format and Pods.
package printers

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"podrun.io/podrun/internal/manifest/minimal"
	"podrun.io/podrun/internal/sys/fileerror"
)

// Formats are the values of -o, for help and error messages.
const Formats = "wide, json, yaml, name, jsonpath=TEMPLATE, go-template=TEMPLATE,\n" +
	"custom-columns=HEADER:PATH,…, or a file: jsonpath-file=, go-template-file=, custom-columns-file="

// Format is an output format for objects.
type Format struct {
	kind string // wide, json, yaml, name or the kind of a template; "" is a table
	// text renders an object with the template; nil if the format has none.
	text func(object any) ([]byte, error)
	// custom are the columns of custom-columns.
	custom []customColumn
}

// ParseFormat parses the value of -o.
func ParseFormat(output string) (Format, error) {
	if slices.Contains([]string{"", "wide", "json", "yaml", "name"}, output) {
		return Format{kind: output}, nil
	}
	kind, template, ok := strings.Cut(output, "=")
	if !ok {
		return Format{}, fmt.Errorf("-o %q: must be %s", output, strings.ReplaceAll(Formats, "\n", " "))
	}
	if file, is := strings.CutSuffix(kind, "-file"); is {
		b, err := os.ReadFile(template)
		if err != nil {
			return Format{}, fmt.Errorf("-o %s: %w", output, fileerror.Cause(err))
		}
		kind, template = file, string(b)
		if kind == "custom-columns" {
			if template, err = columnsFile(template); err != nil {
				return Format{}, fmt.Errorf("-o %s: %w", output, err)
			}
		}
	}
	f := Format{kind: kind}
	var err error
	switch kind {
	case "jsonpath":
		f.text, err = ParseJSONPath(template)
	case "go-template":
		f.text, err = parseGoTemplate(template)
	case "custom-columns":
		f.custom, err = parseColumns(template)
	default:
		err = fmt.Errorf("must be %s", strings.ReplaceAll(Formats, "\n", " "))
	}
	if err != nil {
		return Format{}, fmt.Errorf("-o %s: %w", output, err)
	}
	return f, nil
}

// Tabular reports whether the format is one of the standard tables, which are for people.
func (f Format) Tabular() bool { return f.kind == "" || f.kind == "wide" }

// Wide reports that a table has more columns.
func (f Format) Wide() bool { return f.kind == "wide" }

// Marshal renders an object as YAML, JSON or with the template. It does not handle tables and
// names.
func (f Format) Marshal(object any) ([]byte, error) {
	switch f.kind {
	case "yaml":
		return minimal.YAML(object)
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
func (f Format) headers() []string {
	var header []string
	for _, c := range f.custom {
		header = append(header, c.header)
	}
	return header
}

// rows reports whether the format is a table, standard or with custom columns.
func (f Format) rows() bool { return f.Tabular() || f.custom != nil }

// isName reports whether the format prints only the names of objects.
func (f Format) isName() bool { return f.kind == "name" }
