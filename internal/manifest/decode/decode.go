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

// decode reads valid JSON into a value, and tells of keys that are given twice, of which the last one counts, and of
// numbers that are too long.
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
	// nodes asks for nodes with lines too.
	nodes bool
	// errs are the keys that are given twice, and long the first number that is too long.
	errs []Error
	long *Error
	// line and counted say how far the lines were counted.
	line, counted int
}

// value reads the next value. The text was found valid before, so tokens do not fail.
func (r *reader) value(path string) (any, *yamlv3.Node) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, nil
	}
	return r.rest(token, path)
}

// rest reads what belongs to a token that was read.
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
			r.long = &Error{Line: r.piece.line + r.lines(), Path: path, Message: fmt.Sprintf("is a number of more than %d characters", maxNumber)}
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

// lines is the number of lines before what was read last.
func (r *reader) lines() int {
	now := int(r.decoder.InputOffset())
	r.line += bytes.Count(r.piece.text[r.counted:now], []byte("\n"))
	r.counted = now
	return r.line
}

// maxPath is how long a path may get. There is one for each value, so that longer ones would take the square of the
// file's length; what is nested more deeply, or has longer keys, has the path of what is around it.
const maxPath = 2000

// member is the path of a field of what is at path.
func member(path, key string) string {
	if len(path)+len(key) > maxPath {
		return path
	}
	return strings.TrimPrefix(path+"."+key, ".")
}

// item is the path of an item of the list at path.
func item(path string, i int) string {
	if len(path) > maxPath {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
}

// Canonical writes a value in the one way that podrun hashes it: keys sorted by their bytes, no white
// space, numbers by their value, strings as they are but for quotes, backslashes and control
// characters. It must never change: identities are made from it.
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

// number spells a number by its value: 1, 1.0 and 1e0 are the same. What has no exact place in 64 bits
// is what a double holds of it, as YAML reads it.
func number(text string) string {
	if len(text) <= len("-9223372036854775808") { // a longer one takes time, and has no place in 64 bits
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
