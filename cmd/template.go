package cmd

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/template"

	"k8s.io/client-go/util/jsonpath"
)

// bare is an object as templates see it: maps and lists under the fields' JSON names.
func bare(object any) (any, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var out any
	err = json.Unmarshal(b, &out)
	return out, err
}

// filled makes an object's text by the execution of a parsed template.
func filled(execute func(io.Writer, any) error) func(any) ([]byte, error) {
	return func(object any) ([]byte, error) {
		plain, err := bare(object)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = execute(&out, plain)
		return out.Bytes(), err
	}
}

// parseJSONPath returns what makes an object's text by a template as kubectl's -o jsonpath takes it.
func parseJSONPath(text string) (func(any) ([]byte, error), error) {
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(text); err != nil {
		return nil, err
	}
	return filled(path.Execute), nil
}

// parseGoTemplate does the same for Go's templates, with kubectl's functions.
func parseGoTemplate(text string) (func(any) ([]byte, error), error) {
	t, err := template.New("output").Funcs(template.FuncMap{"exists": exists, "base64decode": base64Decode}).Parse(text)
	if err != nil {
		return nil, err
	}
	return filled(t.Execute), nil
}

// exists reports that fields, each within the one before, lead somewhere.
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

// customColumn is one of custom-columns.
type customColumn struct {
	header string
	path   *jsonpath.JSONPath
}

// parseColumns takes HEADER:PATH,… as kubectl does: the braces and the first dot of a path may be left out.
func parseColumns(spec string) ([]customColumn, error) {
	var all []customColumn
	for _, one := range strings.Split(spec, ",") {
		header, path, ok := strings.Cut(one, ":")
		if !ok || header == "" || path == "" {
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

// columnsFile turns a file with a line of headers and a line of paths into a columns' specification.
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

// customRow is an object's row; what it does not have is <none>.
func customRow(columns []customColumn, object any) ([]string, error) {
	plain, err := bare(object)
	if err != nil {
		return nil, err
	}
	var row []string
	for _, c := range columns {
		found, err := c.path.FindResults(plain)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.header, err)
		}
		var texts []string
		for _, some := range found {
			for _, value := range some {
				texts = append(texts, cellText(value))
			}
		}
		row = append(row, orNone(strings.Join(texts, ",")))
	}
	return row, nil
}

func cellText(v reflect.Value) string {
	if !v.IsValid() || !v.CanInterface() || v.Interface() == nil {
		return "<none>"
	}
	return fmt.Sprint(v.Interface())
}
