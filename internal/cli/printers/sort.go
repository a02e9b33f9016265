package printers

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"podrun.io/podrun/internal/pod/quantity"
)

// Order is the order of objects by a field, as kubectl's --sort-by gives it. nil leaves the order as it is.
type Order struct {
	text string
	path *jsonpath.JSONPath
}

// ParseOrder parses the value of --sort-by: the path of a field, whose braces and leading dot are optional. It returns
// nil for "".
func ParseOrder(text string) (*Order, error) {
	if text == "" {
		return nil, nil
	}
	path := strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	if strings.Trim(path, ". ") == "" || strings.HasPrefix(text, "{") != strings.HasSuffix(text, "}") {
		return nil, fmt.Errorf("--sort-by %q: must be the path of a field, such as .metadata.name", text)
	}
	o := &Order{text: text, path: jsonpath.New("sort-by").AllowMissingKeys(true)}
	if err := o.path.Parse("{." + strings.TrimPrefix(path, ".") + "}"); err != nil {
		return nil, fmt.Errorf("--sort-by %q: %w; it must be the path of a field, such as .metadata.name", text, err)
	}
	return o, nil
}

// Sort sorts objects by the field, those without it first. It fails if none of the objects has the field.
func Sort[T any](o *Order, objects []T) error {
	if o == nil || len(objects) == 0 {
		return nil
	}
	type keyed struct {
		object T
		key    any
	}
	all, found := make([]keyed, 0, len(objects)), false
	for _, object := range objects {
		key, err := o.key(object)
		if err != nil {
			return fmt.Errorf("--sort-by %q: %w", o.text, err)
		}
		found = found || key != nil
		all = append(all, keyed{object, key})
	}
	if !found {
		return fmt.Errorf("--sort-by %q: none of the objects has such a field", o.text)
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return compareValues(a.key, b.key) })
	for i := range all {
		objects[i] = all[i].object
	}
	return nil
}

// key returns the value of the field in an object, or nil.
func (o *Order) key(object any) (any, error) {
	fields, err := toUnstructured(object)
	if err != nil {
		return nil, err
	}
	results, err := o.path.FindResults(fields)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil, err
	}
	value := results[0][0]
	if !value.IsValid() || !value.CanInterface() || value.Kind() == reflect.Interface && value.IsNil() {
		return nil, nil
	}
	return value.Interface(), nil
}

// compareValues compares two values of JSON: numbers and quantities by size, everything else as text; nil is the least.
func compareValues(a, b any) int {
	if a == nil || b == nil {
		return cmp.Compare(boolToInt(a != nil), boolToInt(b != nil))
	}
	if x, ok := a.(float64); ok {
		if y, ok := b.(float64); ok {
			return cmp.Compare(x, y)
		}
	}
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	if p, err := quantity.Parse(x); err == nil {
		if q, err := quantity.Parse(y); err == nil {
			return p.Cmp(q)
		}
	}
	return cmp.Compare(x, y)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
