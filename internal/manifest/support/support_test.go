package support

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/decode"
)

// TestTableIsComplete checks that the table has an entry for every field of Kubernetes' types, and
// no others.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		typ = decode.Element(typ)
		if typ.Kind() == reflect.Slice {
			walk(typ.Elem())
			return
		}
		if typ.Kind() == reflect.Map && described(typ) {
			seen[typ.Name()] = true
			return
		}
		if typ.Kind() != reflect.Struct || decode.Opaque(typ) || seen[typ.Name()] {
			return
		}
		seen[typ.Name()] = true
		if !described(typ) {
			t.Errorf("type %s is not in the table", typ)
			return
		}
		left := maps.Clone(fieldsOf(typ))
		for _, f := range decode.Fields(typ) {
			r, ok := left[f.Name]
			if !ok {
				t.Errorf("field %s of %s is not in the table", f.Name, typ)
			}
			delete(left, f.Name)
			if r.descends() {
				walk(f.Type)
			}
		}
		for name := range left {
			t.Errorf("%s has no field %s", typ, name)
		}
	}
	walk(reflect.TypeFor[v1.Pod]())
	for _, typ := range workloadTypes {
		walk(typ)
	}
	for _, types := range []map[string]map[string]*rule{table, workloadTable} {
		for name := range types {
			if !seen[name] {
				t.Errorf("no supported field is of type %s", name)
			}
		}
	}
}

// TestEachRefusedFieldIsRefused checks that every refused field is refused if it is set, and that
// every field with a list of values accepts only these.
func TestEachRefusedFieldIsRefused(t *testing.T) {
	t.Parallel()
	refused, ignored := 0, 0
	each(reflect.TypeFor[v1.Pod](), "", func(path string, typ reflect.Type, r *rule) {
		switch {
		case r.support == Refused:
			refused++
			if got := errorsOf(path, something(typ)); !slices.Contains(got, path+": "+r.message()) {
				t.Errorf("%s: got %q", path, got)
			}
		case r.support == Ignored:
			ignored++
			if got := warningsOf(path, something(typ)); !slices.Contains(got, path+": "+r.note) {
				t.Errorf("%s: warnings %q", path, got)
			}
			if got := errorsOf(path, something(typ)); len(got) > 0 {
				t.Errorf("%s: errors %q", path, got)
			}
			for _, value := range r.only {
				var silent any = value
				if decode.Element(typ).Kind() == reflect.Bool {
					silent = value == "true"
				}
				if got := warningsOf(path, silent); len(got) > 0 {
					t.Errorf("%s: %s: warnings %q", path, value, got)
				}
			}
		case r.only != nil:
			bad := any("Other")
			if decode.Element(typ).Kind() == reflect.Bool {
				bad = r.only[0] != "true"
			}
			if got := errorsOf(path, bad); len(got) != 1 || !strings.HasPrefix(got[0], path+": Forbidden: only ") {
				t.Errorf("%s: got %q", path, got)
			}
			for _, value := range r.only {
				good := any(value)
				if decode.Element(typ).Kind() == reflect.Bool {
					good = value == "true"
				}
				if got := errorsOf(path, good); len(got) > 0 {
					t.Errorf("%s: %v: got %q", path, good, got)
				}
			}
		}
	})
	if refused < 50 {
		t.Errorf("only %d refused fields", refused)
	}
	if ignored < 15 {
		t.Errorf("only %d ignored fields", ignored)
	}
}

// each visits the table's fields with the paths of a first element.
func each(typ reflect.Type, path string, visit func(string, reflect.Type, *rule)) {
	typ = decode.Element(typ)
	switch {
	case typ.Kind() == reflect.Slice:
		each(typ.Elem(), path+"[0]", visit)
	case !described(typ):
	case typ.Kind() == reflect.Map:
		for key, r := range table[typ.Name()] {
			visit(path+"["+key+"]", typ.Elem(), r)
		}
	default:
		for _, f := range decode.Fields(typ) {
			r, _ := ruleOf(typ, f.Name)
			at := strings.TrimPrefix(path+"."+f.Name, ".")
			visit(at, f.Type, r)
			if r.descends() {
				each(f.Type, at, visit)
			}
		}
	}
}

// something is a value of a type that says something.
func something(typ reflect.Type) any {
	element := decode.Element(typ)
	if decode.Opaque(element) {
		return "something"
	}
	switch element.Kind() {
	case reflect.String:
		return "something"
	case reflect.Bool:
		return true
	case reflect.Slice:
		return []any{something(element.Elem())}
	case reflect.Map:
		return map[string]any{"key": something(element.Elem())}
	case reflect.Struct:
		return map[string]any{"key": "value"}
	}
	return json.Number("1")
}

// errorsOf are the errors for a pod that has only this.
func errorsOf(path string, value any) []string {
	errs, _ := Check(podWith(path, value))
	return texts(errs)
}

// warningsOf are the warnings for a pod that has only this.
func warningsOf(path string, value any) []string {
	_, warnings := Check(podWith(path, value))
	return texts(warnings)
}

// podWith is a pod that has only this.
func podWith(path string, value any) any {
	path = strings.NewReplacer("[0]", ".0", "[", ".", "]", "").Replace(path)
	steps := strings.Split(path, ".")
	for _, step := range slices.Backward(steps) {
		if step == "0" {
			value = []any{value}
		} else {
			value = map[string]any{step: value}
		}
	}
	return value
}

func texts(errs []decode.Error) []string {
	var all []string
	for _, e := range errs {
		all = append(all, e.Path+": "+e.Message)
	}
	return all
}

func TestEmptyValuesPass(t *testing.T) {
	t.Parallel()
	for path, value := range map[string]any{
		"spec.initContainers":                 []any{},
		"spec.nodeSelector":                   map[string]any{},
		"spec.hostPID":                        false,
		"spec.hostname":                       "",
		"spec.affinity":                       nil,
		"status":                              map[string]any{},
		"metadata.annotations":                map[string]any{"example.com/x": "podrun.io/y"},
		"spec.containers[0].stdin":            false,
		"spec.containers[0].ports[0].hostIP":  "",
		"spec.containers[0].resources.claims": []any{},
	} {
		if got := errorsOf(path, value); len(got) > 0 {
			t.Errorf("%s: %q", path, got)
		}
	}
	for path, value := range map[string]any{
		"spec.resourceClaims":   []any{"c"},
		"spec.volumes[0].iscsi": map[string]any{},
		"spec.volumes[0].fc":    map[string]any{},
		"spec.overhead":         map[string]any{"cpu": "1"},
	} {
		if got := errorsOf(path, value); len(got) != 1 {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// TestFractionsOfBytes checks which quantities of bytes are not whole; what cannot be read is none of them.
func TestFractionsOfBytes(t *testing.T) {
	t.Parallel()
	for amount, want := range map[string]bool{
		"16m": true, "1.5": true, "500u": true, "0.5Ki": false, "1500m": true, "1e-9": true, "1e-1000000": false,
		"16Mi": false, "16": false, "16000m": false, "0": false, "1e1000000": false, "much": false, "": false,
	} {
		if got := isFraction(amount); got != want {
			t.Errorf("%s: got %v", amount, got)
		}
	}
}
