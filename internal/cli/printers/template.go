package printers

import (
	"bufio"
	"bytes"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// toUnstructured converts an object to maps and lists with the JSON names of the fields, as templates expect
// it. Whole numbers are int64, as kubectl's paths compare and print them.
func toUnstructured(object any) (any, error) { return unstructured(object, json.Unmarshal) }

func unstructured(object any, unmarshal func([]byte, any) error) (any, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var out any
	err = unmarshal(b, &out)
	return out, err
}

// renderer returns a function that renders an object with the execute method of a parsed template. unmarshal decodes
// the fields of the object for it.
func renderer(execute func(io.Writer, any) error, unmarshal func([]byte, any) error) func(any) ([]byte, error) {
	return func(object any) ([]byte, error) {
		fields, err := unstructured(object, unmarshal)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = execute(&out, fields)
		return out.Bytes(), err
	}
}

// ParseJSONPath parses a template for kubectl's -o jsonpath and returns a function that renders an
// object with it.
func ParseJSONPath(text string) (func(any) ([]byte, error), error) {
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(text); err != nil {
		return nil, fmt.Errorf("%w; a template is such as {.status.podIP} or {range .items[*]}{.metadata.name}{end}", err)
	}
	return renderer(path.Execute, json.Unmarshal), nil
}

// parseGoTemplate parses a Go template, with kubectl's functions, and returns a function that
// renders an object with it.
func parseGoTemplate(text string) (func(any) ([]byte, error), error) {
	t, err := template.New("output").Funcs(template.FuncMap{"exists": exists, "base64decode": base64Decode}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("line %s", strings.TrimPrefix(err.Error(), "template: output:"))
	}
	return renderer(t.Execute, stdjson.Unmarshal), nil // all numbers are float64, as with kubectl
}

// exists reports whether nested fields exist in a map: the first in in, each other in the value of
// the one before.
func exists(in any, fields ...string) bool {
	for _, field := range fields {
		m, ok := in.(map[string]any)
		if !ok {
			return false
		}
		if in, ok = m[field]; !ok {
			return false
		}
	}
	return true
}

func base64Decode(text string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	return string(b), err
}

// customColumn is a column of custom-columns.
type customColumn struct {
	header string
	path   *jsonpath.JSONPath
}

// parseColumns parses HEADER:PATH,… as kubectl does. The braces and the leading dot of a path are
// optional.
func parseColumns(spec string) ([]customColumn, error) {
	var all []customColumn
	for _, one := range strings.Split(spec, ",") {
		header, path, ok := strings.Cut(one, ":")
		if !ok || path == "" { // no header: an empty one
			return nil, fmt.Errorf("%q: must be HEADER:PATH", one)
		}
		path = strings.TrimSuffix(strings.TrimPrefix(path, "{"), "}")
		c := customColumn{header, jsonpath.New(header).AllowMissingKeys(true)}
		if err := c.path.Parse("{." + strings.TrimPrefix(path, ".") + "}"); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// columnsFile converts a file with a line of headers and a line of paths to the form that
// parseColumns takes.
func columnsFile(text string) (string, error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	var words [][]string
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 {
			words = append(words, fields)
		}
	}
	if len(words) != 2 || len(words[0]) != len(words[1]) {
		return "", errors.New("must be a line of headers and a line of as many paths")
	}
	var specs []string
	for i, header := range words[0] {
		specs = append(specs, header+":"+words[1][i])
	}
	return strings.Join(specs, ","), nil
}

// customRow returns the row of an object in custom-columns. Fields that the object does not have are <none>.
func (f Format) customRow(object any) ([]string, error) {
	fields, err := toUnstructured(object)
	if err != nil {
		return nil, err
	}
	var row []string
	for _, c := range f.custom {
		results, err := c.path.FindResults(fields)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.header, err)
		}
		var texts []string
		for _, some := range results {
			for _, value := range some {
				texts = append(texts, cellText(value))
			}
		}
		row = append(row, OrNone(strings.Join(texts, ",")))
	}
	return row, nil
}

func cellText(v reflect.Value) string {
	if !v.IsValid() || !v.CanInterface() || v.Interface() == nil {
		return "<none>"
	}
	return fmt.Sprint(v.Interface())
}
