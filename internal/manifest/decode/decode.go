package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// decode decodes valid JSON into a value. It returns an error for each duplicate key, of which the
// last value is used, and for the first number that is too long.
func decode(p piece) (any, []Error) {
	r := newReader(p)
	value, _ := r.value("")
	if r.long != nil {
		r.errs = append(r.errs, *r.long)
	}
	return value, r.errs
}

func newReader(p piece) *reader {
	r := &reader{piece: p, decoder: json.NewDecoder(bytes.NewReader(p.text))}
	r.decoder.UseNumber()
	return r
}

type reader struct {
	piece   piece
	decoder *json.Decoder
	// nodes is set if nodes with line numbers are built too.
	nodes bool
	// errs are the errors of duplicate keys, and long is the error of the first number that is too
	// long.
	errs []Error
	long *Error
	// line is the number of line ends in the first counted bytes.
	line, counted int
}

// value reads the next value. The text is known to be valid JSON, so reading a token does not fail.
func (r *reader) value(path string) (any, *yamlv3.Node) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, nil
	}
	return r.rest(token, path)
}

// rest reads the rest of the value that begins with token.
func (r *reader) rest(token json.Token, path string) (any, *yamlv3.Node) {
	node := r.node(yamlv3.ScalarNode)
	switch token {
	case json.Delim('{'):
		return r.object(path)
	case json.Delim('['):
		list := []any{}
		node = r.node(yamlv3.SequenceNode)
		for i := 0; r.decoder.More(); i++ {
			v, n := r.value(item(path, i))
			list = append(list, v)
			if r.nodes {
				node.Content = append(node.Content, n)
			}
		}
		_, _ = r.decoder.Token()
		return list, node
	}
	if n, ok := token.(json.Number); ok && len(n) > maxNumber {
		if r.long == nil {
			r.long = &Error{
				Line:    r.piece.line + r.lines(),
				Path:    path,
				Message: fmt.Sprintf("is a number of more than %d characters", maxNumber),
			}
		}
		token = json.Number("0")
	}
	return token, node
}

func (r *reader) object(path string) (any, *yamlv3.Node) {
	object := map[string]any{}
	node := r.node(yamlv3.MappingNode)
	for r.decoder.More() {
		token, err := r.decoder.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			break
		}
		at := r.node(yamlv3.ScalarNode)
		field := member(path, key)
		v, n := r.value(field)
		if _, twice := object[key]; twice && len(r.errs) < MaxErrors {
			r.errs = append(r.errs, Error{
				Line: r.piece.line + r.lines(), Path: field, Message: fmt.Sprintf("duplicate key %q", abbreviate(key)),
			})
		}
		object[key] = v
		if r.nodes {
			at.Value = key
			node.Content = append(node.Content, at, n)
		}
	}
	_, _ = r.decoder.Token()
	return object, node
}

func (r *reader) node(kind yamlv3.Kind) *yamlv3.Node {
	if !r.nodes {
		return nil
	}
	return &yamlv3.Node{Kind: kind, Line: r.lines() + 1}
}

// lines returns the number of line ends before the end of the token that was read last.
func (r *reader) lines() int {
	now := int(r.decoder.InputOffset())
	r.line += bytes.Count(r.piece.text[r.counted:now], []byte("\n"))
	r.counted = now
	return r.line
}

// maxPath is about the maximum length of a path. Each value has a path, so without a bound their
// total length could be the square of the file's size. A value that is nested more deeply, or has
// longer keys, has the path of the value around it.
const maxPath = 2000

// member returns the path of a field of the object at path.
func member(path, key string) string {
	if len(path)+len(key) > maxPath {
		return path
	}
	return strings.TrimPrefix(path+"."+key, ".")
}

// item returns the path of an item of the list at path.
func item(path string, i int) string {
	if len(path) > maxPath {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
}

// Canonical encodes a value as the canonical JSON that podrun hashes: keys sorted by their bytes,
// no white space, numbers written by their value, and in strings only quotes, backslashes and
// control characters escaped. Its output must never change, because the identities of pods are
// derived from it.
func Canonical(value any) []byte { return canonical(nil, value) }

func canonical(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case json.Number:
		return append(b, number(v.String())...)
	case string:
		return quoted(b, v)
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = canonical(b, item)
		}
		return append(b, ']')
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		b = append(b, '{')
		for i, key := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(quoted(b, key), ':')
			b = canonical(b, v[key])
		}
		return append(b, '}')
	}
	return b
}

// number returns the canonical form of a number: 1, 1.0 and 1e0 are the same. A number that is not
// exact in 64 bits is rounded to a double, as YAML reads it.
func number(text string) string {
	if len(text) <= len("-9223372036854775808") { // a longer one does not fit into 64 bits, and parsing it takes time
		if i, ok := new(big.Int).SetString(text, 10); ok && (i.IsInt64() || i.IsUint64()) {
			return i.String()
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	if f > -1e15 && f < 1e15 && f == float64(int64(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'e', -1, 64)
}

func quoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = fmt.Appendf(b, "\\u%04x", c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
