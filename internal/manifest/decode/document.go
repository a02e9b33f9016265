// Package decode splits bytes into YAML and JSON documents, checks them strictly against Go types,
// and finds the line of a field. It does not know what the documents mean: defaults, supported
// fields and valid values belong to other packages.
//
// Begin reading at Parse and Check; Document.LineOf finds lines.
package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// MaxSize is the maximum size of a file in bytes, before and after its aliases are expanded.
const MaxSize = 10 << 20

// MaxErrors is the maximum number of errors that are reported of a file. It is bounded because
// finding the line of each error takes time proportional to the size of the file.
const MaxErrors = 100

// maxNumber is the maximum number of characters of a number.
const maxNumber = 1000

// Document is one document of a file.
type Document struct {
	// Line is the line of the file at which the document begins, counted from 1.
	Line int
	// Value consists of map[string]any, []any, string, json.Number, bool and nil.
	Value any

	text []byte
	json bool
	root *yamlv3.Node // built by the first call of LineOf
}

// Error is one error in a file.
type Error struct {
	// Line is 0 if it is not known.
	Line int
	// Path is the path of the field as Kubernetes writes it; empty if the error concerns the text.
	Path    string
	Message string
	// Unknown is set if there is no such field.
	Unknown bool
	// Meant is the path of the field that the author of an unknown field probably meant.
	Meant string
}

func (e Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	return b.String() + e.Message
}

// Parse returns the documents of data that are not empty, and all errors in its text. If there are
// errors, the documents are of use only for finding more errors.
func Parse(data []byte) ([]*Document, []Error) {
	if len(data) > MaxSize {
		return nil, []Error{{Message: fmt.Sprintf("has more than %d MiB", MaxSize>>20)}}
	}
	if !utf8.Valid(data) {
		return nil, []Error{{Line: badLine(data), Message: "is not UTF-8 text"}}
	}
	var docs []*Document
	var errs []Error
	for _, p := range cut(data) {
		if len(errs) > MaxErrors { // the caller detects by the additional error that there are more
			break
		}
		found, bad := parse(p)
		errs = append(errs, bad...)
		for _, d := range found {
			if d.Value != nil {
				docs = append(docs, d)
			}
		}
	}
	return docs, errs
}

// piece is the text of a document with the line at which it begins.
type piece struct {
	text []byte
	line int
}

// cut splits data at lines that begin with --- or are "...", as YAML and kubectl do.
func cut(data []byte) []piece {
	var pieces []piece
	start, startLine := 0, 1
	flush := func(end int) {
		text := bytes.TrimPrefix(data[start:end], []byte("\ufeff"))
		if len(bytes.TrimSpace(text)) > 0 {
			pieces = append(pieces, piece{text, startLine})
		}
	}
	line := 1
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		text := bytes.TrimPrefix(data[at:next], []byte("\ufeff"))
		rest, marker := bytes.CutPrefix(text, []byte("---"))
		switch blank := len(bytes.TrimSpace(rest)) == 0; {
		case marker && blank, string(bytes.TrimRight(text, " \t\r\n")) == "...":
			flush(at)
			start, startLine = next, line+1
		case marker && (rest[0] == ' ' || rest[0] == '\t'):
			flush(at)
			start, startLine = at, line // content may follow on the marker's line
		}
		at = next
	}
	flush(len(data))
	return pieces
}

func parse(p piece) ([]*Document, []Error) {
	if bytes.HasPrefix(bytes.TrimSpace(p.text), []byte("{")) {
		docs, errs, err := parseJSON(p)
		if err == nil {
			return docs, errs
		}
		docs, errs = parseYAML(p) // braces are YAML too
		if len(errs) > 0 && isJSON(p.text) {
			return nil, []Error{*err}
		}
		return docs, errs
	}
	return parseYAML(p)
}

// isJSON reports whether the first key of an object is quoted, so that the errors of the JSON
// decoder are more useful than those of the YAML decoder.
func isJSON(text []byte) bool {
	inner := bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(text), []byte("{")))
	return len(inner) > 0 && inner[0] == '"'
}

// parseJSON parses one or more JSON values. Its last result is the syntax error, if there is one.
func parseJSON(p piece) ([]*Document, []Error, *Error) {
	var docs []*Document
	var errs []Error
	decoder := json.NewDecoder(bytes.NewReader(p.text))
	counted, line := 0, p.line
	for {
		before := int(decoder.InputOffset())
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		after := int(decoder.InputOffset())
		var syntax *json.SyntaxError
		switch {
		case err == nil:
		case errors.As(err, &syntax):
			return nil, nil, &Error{Line: lineAt(p, int(syntax.Offset)-1), Message: "not JSON: " + syntax.Error()}
		case len(bytes.TrimSpace(p.text[before:])) == 0:
			return docs, errs, nil
		default:
			return nil, nil, &Error{Line: lineAt(p, len(p.text)-1), Message: "not JSON: it ends too early"}
		}
		start := after - len(raw)
		line += bytes.Count(p.text[counted:start], []byte("\n"))
		counted = start
		one := piece{text: p.text[start:after], line: line}
		value, bad := decode(one)
		errs = append(errs, bad...)
		docs = append(docs, &Document{Line: one.line, Value: value, text: one.text, json: true})
	}
}

func parseYAML(p piece) ([]*Document, []Error) {
	if err := checkText(p); err != nil {
		return nil, []Error{*err}
	}
	errs := spelledTwice(p)
	out, err := yaml.YAMLToJSONStrict(p.text)
	if err != nil {
		errs = append(errs, yamlErrors(p, err)...)
		if out, err = yaml.YAMLToJSON(p.text); err != nil {
			return nil, errs
		}
	}
	r := newReader(piece{text: out, line: p.line})
	value, _ := r.value("")
	if r.long != nil {
		errs = append(errs, *r.long)
	}
	return []*Document{{Line: p.line, Value: value, text: p.text}}, errs
}

// flowStart matches a line that begins with a bracket.
var flowStart = regexp.MustCompile(`(?m)^(--- )?[^\S\n]*[\[{]`)

// checkText refuses text that the YAML decoder would expand without bound, or of which it would
// silently drop a part.
func checkText(p piece) *Error {
	aliases := bytes.IndexByte(p.text, '*') >= 0 && bytes.IndexByte(p.text, '&') >= 0
	// YAML also knows other line ends than \n and \r\n, which cut does not.
	odd := bytes.ContainsAny(bytes.ReplaceAll(p.text, []byte("\r\n"), nil), "\r\u0085\u2028\u2029")
	// The YAML decoder stops at the closing bracket and ignores what follows.
	flow := flowStart.Match(p.text)
	if !aliases && !odd && !flow {
		return nil
	}
	decoder := yamlv3.NewDecoder(bytes.NewReader(p.text))
	var node yamlv3.Node
	if decoder.Decode(&node) != nil {
		return nil // YAMLToJSONStrict reports the error better
	}
	if aliases && expanded(&node, map[*yamlv3.Node]int{}) > MaxSize {
		return &Error{Line: p.line, Message: fmt.Sprintf("expands to more than %d MiB by its aliases", MaxSize>>20)}
	}
	var second yamlv3.Node
	switch err := decoder.Decode(&second); {
	case odd && err == nil:
		return &Error{Line: p.line, Message: "holds a second document that does not begin on a line of its own"}
	case flow && err != nil && !errors.Is(err, io.EOF):
		errs := yamlErrors(p, err)
		errs[0].Message = "text after the end of the document: " + errs[0].Message
		return &errs[0]
	}
	return nil
}

// expanded returns the size of a node with its aliases expanded; it stops counting above MaxSize.
func expanded(n *yamlv3.Node, known map[*yamlv3.Node]int) int {
	if size, ok := known[n]; ok {
		return size
	}
	known[n] = MaxSize + 1 // for an alias to a node around it, whose expansion has no end
	size := len(n.Value) + 1
	if n.Alias != nil {
		size += expanded(n.Alias, known)
	}
	for _, child := range n.Content {
		size = min(size+expanded(child, known), MaxSize+1)
	}
	known[n] = size
	return size
}

// yamlErrors converts the first errors of the YAML decoder, at most MaxErrors, to errors with the
// lines of the file.
func yamlErrors(p piece, err error) []Error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	text = withoutValues(strings.TrimPrefix(text, "unmarshal errors:\n"))
	root := sync.OnceValue(func() *yamlv3.Node {
		var root yamlv3.Node
		_ = yamlv3.Unmarshal(p.text, &root) // if it fails, the errors have no path
		return &root
	})
	all := strings.SplitN(text, "\n", MaxErrors+1)
	var errs []Error
	for _, one := range all[:min(len(all), MaxErrors)] {
		errs = append(errs, yamlError(p, strings.TrimSpace(one), root))
	}
	return errs
}

// The parts of the YAML decoder's errors that are values of the document, which may be those of a Secret.
var (
	anchorInError = regexp.MustCompile(`(?s)(unknown anchor|anchor) '.*' (referenced|value contains itself)`)
	valueInError  = regexp.MustCompile("(?s)(cannot (?:decode|unmarshal) !!\\w+) `.*?` (as|into) ")
)

// withoutValues returns an error's text without values.
func withoutValues(text string) string {
	text = anchorInError.ReplaceAllString(text, "$1 $2 (a value that begins with * or & must be quoted)")
	return valueInError.ReplaceAllString(text, "$1 $2 ")
}

// numberedLine matches an error of the YAML decoder that names a line.
var numberedLine = regexp.MustCompile(`^line (\d+): (.*)$`)

func yamlError(p piece, text string, root func() *yamlv3.Node) Error {
	numbered := numberedLine.FindStringSubmatch(text)
	if numbered == nil {
		if key := complexKey(p, root()); key != nil {
			return *key
		}
		return Error{Line: p.line, Message: text}
	}
	line, err := strconv.Atoi(numbered[1])
	if err != nil {
		return Error{Line: p.line, Message: text}
	}
	message := numbered[2]
	if strings.HasPrefix(message, "did not find expected") {
		line++ // the parser, unlike the scanner, counts from 0
	}
	line = max(1, min(line, 1+bytes.Count(bytes.TrimRight(p.text, "\r\n"), []byte("\n"))))
	path := ""
	if key, ok := strings.CutSuffix(message, " already set in map"); ok {
		message = "duplicate " + key
		if name, err := strconv.Unquote(strings.TrimPrefix(key, "key ")); err == nil {
			path = pathAt(root(), "", line, name)
		}
	}
	if strings.Contains(message, "cannot start any token") && tabbed(p.text, line) {
		message += " (indented by a tab; YAML wants spaces)"
	}
	return Error{Line: p.line + line - 1, Path: path, Message: message}
}

// tabbed reports whether a line, counted from 1, is indented with a tab.
func tabbed(text []byte, line int) bool {
	lines := bytes.Split(text, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	indent := lines[line-1][:len(lines[line-1])-len(bytes.TrimLeft(lines[line-1], " \t"))]
	return bytes.IndexByte(indent, '\t') >= 0
}

// lineAt returns the line of the byte at offset.
func lineAt(p piece, offset int) int {
	return p.line + bytes.Count(p.text[:max(0, min(offset, len(p.text)))], []byte("\n"))
}

func badLine(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return line
}
