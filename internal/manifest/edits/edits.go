// Package edits compares two versions of an object field by field, for people: podrun diff prints what
// it finds.
//
// It does not know what a field means. Begin reading at Of.
package edits

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Edit is a field whose value changes. The values are JSON, cut off if they are long; "" is none.
type Edit struct {
	Field string `json:"field"`
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// Of returns the innermost fields in which two objects differ, by their JSON names, in alphabetical order.
func Of(a, b any) []Edit { return compare(nil, tree(a), tree(b), "") }

// tree returns the JSON of an object as maps and lists.
func tree(object any) any {
	var tree any
	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil { // cannot happen: every API object can be encoded as JSON
		return nil
	}
	return tree
}

// compare adds the innermost values in which a and b differ. Elements of lists are compared by their names, if
// they have names, so that an element that was added or removed makes no others differ.
func compare(to []Edit, a, b any, path string) []Edit {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := map[string]bool{}
		for key := range a {
			keys[key] = true
		}
		for key := range b {
			keys[key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			to = compare(to, a[key], b[key], strings.TrimPrefix(path+"."+key, "."))
		}
		return to
	case []any:
		b, ok := b.([]any)
		if !ok {
			break
		}
		if len(a) == len(b) && slices.Equal(namesOf(a), namesOf(b)) {
			for i := range a {
				to = compare(to, a[i], b[i], path+"["+strconv.Itoa(i)+"]")
			}
			return to
		}
		if namesOf(a) != nil && namesOf(b) != nil {
			return compareByName(to, a, b, path)
		}
	}
	if !reflect.DeepEqual(a, b) {
		to = append(to, Edit{path, valueText(a), valueText(b)})
	}
	return to
}

// namesOf returns the names of the elements of a list. It returns nil if they have none, or not each one of its own.
func namesOf(list []any) []string {
	var names []string
	for _, element := range list {
		object, _ := element.(map[string]any)
		name, ok := object["name"].(string)
		if !ok || slices.Contains(names, name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// compareByName adds the edits of two lists whose elements have names.
func compareByName(to []Edit, a, b []any, path string) []Edit {
	was, is := namesOf(a), namesOf(b)
	element := func(list []any, names []string, name string) any {
		if i := slices.Index(names, name); i >= 0 {
			return list[i]
		}
		return nil
	}
	count := len(to)
	for _, name := range was {
		to = compare(to, element(a, was, name), element(b, is, name), path+"{"+name+"}")
	}
	for i, name := range is {
		if !slices.Contains(was, name) {
			to = append(to, Edit{Field: path + "{" + name + "}", New: valueText(b[i])})
		}
	}
	if len(to) == count { // only their order differs
		to = append(to, Edit{path, valueText(was), valueText(is)})
	}
	return to
}

// maxValue is the maximum number of characters of a value in an Edit.
const maxValue = 100

// valueText returns a value as JSON of at most maxValue characters; "" for nil.
func valueText(value any) string {
	if value == nil {
		return ""
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil { // cannot happen: it was decoded from JSON
		return ""
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if runes := []rune(text); len(runes) > maxValue {
		text = string(runes[:maxValue-1]) + "…"
	}
	return text
}
