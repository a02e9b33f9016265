package decode

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod/quantity"
)

// Field is a field of a struct type with its JSON name.
type Field struct {
	Name string
	Type reflect.Type
}

// Fields returns the fields of a struct type in order, including those of embedded structs.
func Fields(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous:
			fields = append(fields, Fields(Element(f.Type))...)
		case name != "":
			fields = append(fields, Field{Name: name, Type: f.Type})
		}
	}
	return fields
}

// Element returns the element type of a pointer type, and any other type unchanged.
func Element(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// Opaque reports whether a type decodes itself (json.Unmarshaler), so that its fields do not show
// its JSON form.
func Opaque(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// Location is an object in which a misplaced field may belong.
type Location struct {
	Path string
	Type reflect.Type
}

// Check compares value with a Go type and returns an error for each unknown field and each value of
// a wrong type, at most MaxErrors. It removes those from value, which it modifies, so that the rest
// can be decoded. An unknown field that exists in one of the objects in likely is reported as
// probably misplaced.
func Check(value any, t reflect.Type, path string, likely []Location) []Error {
	c := checker{likely: likely, fields: map[reflect.Type][]Field{}}
	c.check(value, t, path)
	return c.errs
}

type checker struct {
	likely []Location
	fields map[reflect.Type][]Field
	errs   []Error
}

func (c *checker) fail(path, format string, args ...any) bool {
	if len(c.errs) < MaxErrors {
		c.errs = append(c.errs, Error{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	return false
}

// check reports whether value, after the removal of wrong fields, can be decoded into t.
func (c *checker) check(value any, t reflect.Type, path string) bool {
	t = Element(t)
	if value == nil {
		return true // null means that the field is not given
	}
	if Opaque(t) {
		return c.opaque(value, t, path)
	}
	switch t.Kind() {
	case reflect.Struct:
		return c.object(value, t, path)
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			return c.wrong(value, path, "an object")
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if !c.check(object[key], t.Elem(), path+"["+key+"]") {
				delete(object, key)
			}
		}
		return true
	case reflect.Slice:
		return c.list(value, t, path)
	case reflect.Interface:
		return true
	}
	return c.scalar(value, t, path)
}

func (c *checker) object(value any, t reflect.Type, path string) bool {
	object, ok := value.(map[string]any)
	if !ok {
		return c.wrong(value, path, "an object")
	}
	fields, ok := c.fields[t]
	if !ok {
		fields = Fields(t)
		c.fields[t] = fields
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key })
		if i < 0 {
			c.unknown(at, key, fields, path)
			delete(object, key)
			continue
		}
		if !c.check(object[key], fields[i].Type, at) {
			delete(object, key)
		}
	}
	return true
}

func (c *checker) list(value any, t reflect.Type, path string) bool {
	if t.Elem().Kind() == reflect.Uint8 {
		text, ok := value.(string)
		if !ok {
			return c.wrong(value, path, "a string")
		}
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return c.fail(path, "must be base64%s", wrongBase64(err))
		}
		return true
	}
	list, ok := value.([]any)
	if !ok {
		return c.wrong(value, path, "a list")
	}
	for i, item := range list {
		if !c.check(item, t.Elem(), path+"["+strconv.Itoa(i)+"]") {
			list[i] = nil
		}
	}
	return true
}

func (c *checker) opaque(value any, t reflect.Type, path string) bool {
	text := Canonical(value)
	if n, ok := value.(json.Number); ok {
		text = []byte(n) // as it was written, because that matters to some types
	}
	if t == reflect.TypeFor[resource.Quantity]() {
		spelled, ok := value.(string)
		if !ok {
			spelled = string(text)
		}
		if _, err := quantity.Parse(spelled); errors.Is(err, quantity.ErrRefused) {
			return c.fail(path, "Invalid value: %s: %v", abbreviate(string(text)), err)
		}
	}
	if err := json.Unmarshal(text, reflect.New(t).Interface()); err != nil {
		return c.fail(path, "Invalid value: %s: %s", text, wrongOpaque(text, t, err))
	}
	return true
}

func (c *checker) scalar(value any, t reflect.Type, path string) bool {
	switch t.Kind() {
	case reflect.String:
		if _, ok := value.(string); !ok {
			return c.wrong(value, path, "a string")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return c.wrong(value, path, "a boolean")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, ok := value.(json.Number)
		if !ok {
			return c.wrong(value, path, "an integer")
		}
		if _, err := strconv.ParseInt(n.String(), 10, t.Bits()); err != nil {
			return c.fail(path, "must be an integer of at most %d bits, not %s", t.Bits(), n)
		}
	default:
		if err := json.Unmarshal(Canonical(value), reflect.New(t).Interface()); err != nil {
			return c.fail(path, "%s", strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	return true
}

// wrong adds the error for a value that is not of the type want.
func (c *checker) wrong(value any, path, want string) bool {
	var got, hint string
	switch v := value.(type) {
	case map[string]any:
		got = "an object"
	case []any:
		got = "a list"
	case string:
		got = fmt.Sprintf("the string %q", abbreviate(v))
		if want != "a string" && want != "a list" && want != "an object" {
			_, notInteger := strconv.ParseInt(v, 10, 64)
			if notInteger == nil || v == "true" || v == "false" {
				hint = "; leave the quotes out"
			}
		}
	case bool:
		got = fmt.Sprintf("the boolean %t", v)
	case json.Number:
		got = "the number " + v.String()
	}
	if _, ok := value.(string); !ok && want == "a string" && got[:2] == "th" {
		hint = "; put it in quotes"
	}
	return c.fail(path, "must be %s, not %s%s", want, got, hint)
}

func abbreviate(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// unknown adds the error for an unknown field, with the field that was probably meant.
func (c *checker) unknown(at, key string, fields []Field, path string) {
	if len(c.errs) >= MaxErrors {
		return
	}
	e := Error{Path: at, Message: "unknown field", Unknown: true}
	near, how := nearest(key, fields)
	if how > 1 {
		for _, place := range c.likely {
			known := slices.ContainsFunc(Fields(place.Type), func(f Field) bool { return f.Name == key })
			if known && place.Path != path {
				e.Meant = place.Path + "." + key
				e.Message += fmt.Sprintf(", did you mean %s?", e.Meant)
				c.errs = append(c.errs, e)
				return
			}
		}
	}
	if near != "" {
		e.Meant = strings.TrimPrefix(path+"."+near, ".")
		e.Message += fmt.Sprintf(", did you mean %q?", near)
	}
	c.errs = append(c.errs, e)
}

// nearest returns the name of the field that is most similar to key, and their distance.
func nearest(key string, fields []Field) (name string, unlike int) {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return Nearest(key, names)
}

// Nearest returns the one of names that was probably meant by key, and their edit distance; "" and
// 3 if none is similar.
func Nearest(key string, names []string) (name string, unlike int) {
	unlike = 3
	for _, one := range names {
		d := distance(strings.ToLower(one), strings.ToLower(key))
		if d < unlike && d <= max(1, len(key)/3) {
			name, unlike = one, d
		}
	}
	return name, unlike
}

// distance returns the number of letters to change, add, remove or swap between a and b; 64 if one
// is longer than that.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
