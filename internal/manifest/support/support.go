// Package support owns the table of the fields and annotations of a Pod that podrun supports or
// ignores with a warning, and refuses all others by name. Of values it checks only those of fields that
// are supported in part, and warns of quantities of bytes that are not whole; package validate checks all others.
//
// Begin reading at Check, which applies the table to a manifest, and at Entries, which lists it.
package support

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/pod/quantity"
)

// Support is the degree to which podrun supports a field.
type Support string

// The degrees of support. All fields below a Refused field are refused. An Ignored field, with all
// fields below it, is accepted with a warning.
const (
	Supported  Support = "yes"
	Restricted Support = "in part"
	Ignored    Support = "ignored"
	Refused    Support = "no"
)

// Entry is the support for one field.
type Entry struct {
	// Field is the path of the field, such as spec.containers[].image.
	Field   string
	Support Support
	// Note is a restriction, a reason, or the meaning of the field in podrun.
	Note string
	// Warning is when the field is accepted with a warning, which --strict-fields makes an error; empty
	// if never.
	Warning string
}

// rule is the table entry of a field.
type rule struct {
	support Support
	note    string
	// only has the accepted values, or for an Ignored field those that need no warning; nil if package
	// validate decides.
	only []string
	// warns is the note of a field that is supported, but only as far as the warning says.
	warns bool
	// bytes is whether the field is a quantity of bytes. One that is not whole is rounded up, and hardly meant.
	bytes bool
}

// The functions of the table are called a thousand times: inlined, they are 230 KB of the program.

//go:noinline
func yes(note string) *rule { return &rule{support: Supported, note: note} }

//go:noinline
func limited(note string) *rule { return &rule{support: Restricted, note: note} }

//go:noinline
func only(note string, values ...string) *rule {
	return &rule{support: Restricted, note: note, only: values}
}

// ignored is the rule of a field that does not matter on one machine. It needs no warning if it has
// one of values.
//
//go:noinline
func ignored(note string, values ...string) *rule {
	return &rule{support: Ignored, note: note, only: values, warns: true}
}

// warned is the rule of a field that is supported, with a warning that says how far.
//
//go:noinline
func warned(note string) *rule { return &rule{support: Restricted, note: note, warns: true} }

// inBytes returns the rule of a quantity of bytes.
func (r *rule) inBytes() *rule {
	r.bytes = true
	return r
}

//go:noinline
func no() *rule { return &rule{support: Refused, note: "not supported yet"} }

//go:noinline
func never(why string) *rule { return &rule{support: Refused, note: why} }

func (r *rule) message() string                      { return "Forbidden: " + r.note }
func (r *rule) passes(value string, found bool) bool { return found && slices.Contains(r.only, value) }
func ruleOf(t reflect.Type, field string) (*rule, bool) {
	fields := fieldsOf(t)
	if fields == nil {
		return nil, false
	}
	if r, ok := fields[field]; ok {
		return r, true
	}
	best, found := "", false
	for key := range fields { // "*" itself is the shortest prefix
		if prefix, open := strings.CutSuffix(key, "*"); open && strings.HasPrefix(field,
			prefix) && len(key) > len(best) {
			best, found = key, true
		}
	}
	return fields[best], found
}

// described reports whether the table has an entry for each field, or key, of t.
func described(t reflect.Type) bool { return t.Name() != "" && fieldsOf(t) != nil }

// Entries returns an Entry for every field of a Pod in the order of Kubernetes' types. It does not
// descend below a Refused field, nor into types that are not in the table.
func Entries() []Entry {
	var entries []Entry
	walkType(reflect.TypeFor[v1.Pod](), "", func(e Entry) { entries = append(entries, e) })
	return entries
}

func walkType(t reflect.Type, path string, visit func(Entry)) {
	t = decode.Element(t)
	switch {
	case t.Kind() == reflect.Slice:
		walkType(t.Elem(), path+"[]", visit)
	case !described(t):
	case t.Kind() == reflect.Map:
		fields := fieldsOf(t)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			r := fields[key]
			visit(r.entry(path + "[" + key + "]"))
		}
	default:
		for _, f := range decode.Fields(t) {
			r, _ := ruleOf(t, f.Name)
			at := strings.TrimPrefix(path+"."+f.Name, ".")
			visit(r.entry(at))
			if r.descends() {
				walkType(f.Type, at, visit)
			}
		}
	}
}

// descends reports whether fields below a field have rules of their own.
func (r *rule) descends() bool { return r.support != Refused && r.support != Ignored }

// entry returns the table entry of the field at a path.
func (r *rule) entry(path string) Entry {
	e := Entry{Field: path, Support: r.support, Note: r.text()}
	switch {
	case r.warns && r.only != nil:
		e.Warning = "unless " + strings.Join(r.only, " or ")
	case r.warns:
		e.Warning = "always"
	case r.bytes:
		e.Warning = "if no whole number of bytes"
	}
	return e
}

// text returns the note for the documentation.
func (r *rule) text() string {
	if r.only == nil || r.warns {
		return r.note
	}
	return strings.TrimSuffix("only "+strings.Join(r.only, ", ")+"; "+r.note, "; ")
}

// Check returns an error for each field and annotation of a Pod that podrun does not support, and a
// warning for each that it accepts but ignores; at most decode.MaxErrors of both. value is a decoded
// document; Check does not modify it.
func Check(value any) (errs, warnings []decode.Error) {
	c := checker{}
	c.walk(value, reflect.TypeFor[v1.Pod](), "")
	c.annotations(value, "")
	return c.errs, c.warnings
}

// CheckMeta does for the metadata of a ConfigMap or Secret what Check does for a Pod.
func CheckMeta(value any) (errs, warnings []decode.Error) {
	c := checker{}
	if object, ok := value.(map[string]any); ok {
		c.walk(object["metadata"], reflect.TypeFor[metav1.ObjectMeta](), "metadata")
	}
	return c.errs, c.warnings
}

type checker struct{ errs, warnings []decode.Error }

func (c *checker) fail(path, message string) {
	if len(c.errs) < decode.MaxErrors {
		c.errs = append(c.errs, decode.Error{Path: path, Message: message})
	}
}

func (c *checker) warn(path, message string) {
	if len(c.warnings) < decode.MaxErrors {
		c.warnings = append(c.warnings, decode.Error{Path: path, Message: message})
	}
}

func (c *checker) walk(value any, t reflect.Type, path string) {
	t = decode.Element(t)
	switch v := value.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i, item := range v {
				c.walk(item, t.Elem(), path+"["+strconv.Itoa(i)+"]")
			}
		}
	case map[string]any:
		if !described(t) {
			return
		}
		types := map[string]reflect.Type{}
		if t.Kind() == reflect.Struct {
			for _, f := range decode.Fields(t) {
				types[f.Name] = f.Type
			}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := strings.TrimPrefix(path+"."+key, ".")
			if t.Kind() == reflect.Map {
				at, types[key] = path+"["+key+"]", t.Elem()
			}
			if types[key] != nil && v[key] != nil {
				c.field(v[key], t, types[key], key, at)
			}
		}
	}
}

// field checks one field that is set.
func (c *checker) field(value any, owner, t reflect.Type, key, path string) {
	r, ok := ruleOf(owner, key)
	if !ok {
		r = no()
	}
	switch {
	case r.support == Refused:
		if owner.Kind() == reflect.Map || !saysNothing(value, t) {
			c.fail(path, r.message())
		}
	case r.support == Ignored:
		if scalar, isScalar := spell(value); !saysNothing(value, t) && !r.passes(scalar, isScalar) {
			c.warn(path, r.note)
		}
	case r.only != nil:
		scalar, isScalar := spell(value)
		if !saysNothing(value, t) && !r.passes(scalar, isScalar) {
			c.fail(path, fmt.Sprintf("Forbidden: only %s is supported yet", strings.Join(r.only, " or ")))
		}
	default:
		if r.warns && !saysNothing(value, t) {
			c.warn(path, r.note)
		}
		if amount, _ := spell(value); r.bytes && isFraction(amount) {
			c.warn(path, amount+" is not a whole number of bytes: m is a thousandth, Mi is 1024 * 1024")
		}
		c.walk(value, t, path)
	}
}

// annotations refuses annotations of a pod that request something that podrun does not do. outer is what
// precedes its fields in paths.
func (c *checker) annotations(value any, outer string) {
	object, _ := value.(map[string]any)
	meta, _ := object["metadata"].(map[string]any)
	given, _ := meta["annotations"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(given)) {
		prefix, _, _ := strings.Cut(key, "/")
		r, listed := annotations[key]
		known := listed
		if !known {
			r, known = annotations[prefix+"/"]
		}
		at := outer + "metadata.annotations[" + key + "]"
		switch value, _ := spell(given[key]); {
		case !known:
		case r.support == Ignored:
			c.warn(at, r.note)
		case r.support == Refused:
			c.fail(at, r.message()+meantAnnotation(key, listed))
		case r.only != nil && !r.passes(value, true):
			c.fail(at, fmt.Sprintf("Unsupported value: %q: supported values: %q", value, strings.Join(r.only, ", ")))
		}
	}
}

// meantAnnotation returns a hint at the annotation that was probably meant by an unknown one.
func meantAnnotation(key string, listed bool) string {
	if listed {
		return ""
	}
	var supported []string
	for name, r := range annotations {
		if r.support != Refused {
			supported = append(supported, name)
		}
	}
	if near, _ := decode.Nearest(key, slices.Sorted(slices.Values(supported))); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}

// saysNothing reports whether a value means the same as an omitted field: the zero value of a type
// that is no pointer, in which an omitted field has the same value.
func saysNothing(value any, t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		return false
	}
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	scalar, _ := spell(value)
	return scalar == "" || scalar == "false" || scalar == "0"
}

// isFraction reports whether an amount of bytes is valid and not whole. The API server warns of such amounts too.
func isFraction(amount string) bool {
	q, err := quantity.Parse(amount)
	return err == nil && q.CmpInt64(q.Value()) < 0 // Value rounds up
}

// spell returns a scalar as text, as YAML writes it; false for an object or list.
func spell(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case map[string]any, []any:
		return "", false
	default:
		return string(decode.Canonical(v)), true
	}
}
