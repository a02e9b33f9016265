package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// field is a field of a pod with its type.
type field struct {
	path []any
	t    reflect.Type
}

// fields returns all fields of a pod, found by reflection. Of a list it uses element 0, of a map
// the key k (cpu for resources).
func fields() []field {
	var all []field
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1.Pod]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		// podrun refuses the status, and what only an API server sets, as a whole, so a few values
		// are enough.
		switch {
		case name == "status":
			all = append(all, field{[]any{name}, f.Type})
		case name != "" && len(f.Index) == 1 || name == "kind" || name == "apiVersion":
			all = append(all, below(f.Type, []any{name}, 9)...)
		}
	}
	return all
}

// below returns the field at a path, which has the type t, and those in it, to a depth.
func below(t reflect.Type, path []any, depth int) []field {
	all := []field{{append([]any{}, path...), t}}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if depth == 0 || reads(t) || refusedWhole[plain(path)] {
		return all
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-":
			case name == "":
				all = append(all, embedded(f.Type, path, depth)...)
			default:
				all = append(all, below(f.Type, append(path, name), depth-1)...)
			}
		}
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			all = append(all, below(t.Elem(), append(path, 0), depth-1)...)
		}
	case reflect.Map:
		all = append(all, below(t.Elem(), append(path, keyOf(t)), depth-1)...)
	}
	return all
}

// refusedWhole has fields that podrun will never support. The fields below them are not tested,
// because podrun refuses the whole field.
var refusedWhole = map[string]bool{
	"metadata.managedFields": true, "metadata.ownerReferences": true, "spec.ephemeralContainers": true,
	"spec.affinity":                  true,
	"spec.topologySpreadConstraints": true, "spec.resourceClaims": true, "spec.schedulingGates": true,
	"spec.readinessGates":    true,
	"spec.volumes.ephemeral": true, "spec.volumes.csi": true, "spec.volumes.flexVolume": true,
	"spec.volumes.storageos": true,
	"spec.volumes.scaleIO":   true, "spec.volumes.cinder": true, "spec.volumes.rbd": true, "spec.volumes.cephfs": true,
	"spec.volumes.quobyte": true, "spec.volumes.azureDisk": true, "spec.volumes.azureFile": true,
	"spec.volumes.glusterfs": true,
	"spec.volumes.flocker":   true, "spec.volumes.gitRepo": true, "spec.volumes.photonPersistentDisk": true,
	"spec.volumes.portworxVolume": true, "spec.volumes.vsphereVolume": true, "spec.volumes.gcePersistentDisk": true,
	"spec.volumes.awsElasticBlockStore": true, "spec.securityContext.windowsOptions": true,
	"spec.containers.securityContext.windowsOptions": true, "spec.initContainers.securityContext.windowsOptions": true,
}

// embedded returns the fields of an embedded struct as if they were the outer one's.
func embedded(t reflect.Type, path []any, depth int) []field {
	var all []field
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			all = append(all, below(f.Type, append(append([]any{}, path...), name), depth-1)...)
		}
	}
	return all
}

// reads reports whether a type decodes itself (json.Unmarshaler).
func reads(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

func keyOf(t reflect.Type) string {
	if t.Elem() == reflect.TypeFor[resource.Quantity]() {
		return "cpu"
	}
	return "k"
}

// edgeValues returns JSON values at and beyond the limits of a type.
func edgeValues(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return []string{`null`, `""`, `"0"`, `0`, `1`, `-1`, `1.5`, `1e3`, `"1e3"`, `"100m"`, `"0.1m"`, `"1Gi"`,
			`"1.5Gi"`, `"1gi"`,
			`"abc"`, `" 1"`, `"1 Gi"`, `"+1"`, `"-0"`, `"9223372036854775807"`, `"9223372036854775808"`, `"1E"`, `"1u"`,
			`"1n"`, `true`, `{}`, `[]`}
	case reflect.TypeFor[intstr.IntOrString]():
		return []string{`null`, `0`, `1`, `-1`, `80`, `65535`, `65536`, `"web"`, `"80"`, `""`, `"WEB"`, `true`, `1.5`,
			`4294967296`, `{}`}
	case reflect.TypeFor[metav1.Time]():
		return []string{`null`, `"2026-01-02T03:04:05Z"`, `"2026"`, `1`}
	case reflect.TypeFor[metav1.FieldsV1]():
		return []string{`{}`}
	}
	switch t.Kind() {
	case reflect.String:
		return []string{`null`, `""`, `"a"`, `"A"`, `" "`, `" a"`, `"a b"`, `"a/b"`, `"../a"`, `"/a"`, `"a_b.c"`,
			`"-a"`, `"1"`, `"é"`, `"a\u0000b"`,
			`"a\nb"`, `"` + strings.Repeat("a", 63) + `"`, `"` + strings.Repeat("a", 64) + `"`,
			`"` + strings.Repeat("a", 254) + `"`,
			`1`, `true`, `{}`, `[]`}
	case reflect.Bool:
		return []string{`null`, `true`, `false`, `"true"`, `1`, `{}`, `[]`}
	case reflect.Int32, reflect.Int64:
		return []string{`null`, `0`, `1`, `-1`, `80`, `65535`, `65536`, `2147483647`, `2147483648`,
			`9223372036854775808`, `1.0`, `1.5`, `1e1`, `"1"`, `true`, `{}`, `[]`}
	case reflect.Slice:
		return []string{`null`, `[]`, `{}`, `""`, `[null]`, `[{}]`, `[1]`, `["a"]`, `["a","a"]`, `"a"`}
	case reflect.Map:
		return []string{`null`, `{}`, `[]`, `""`, `{"a":null}`, `{"":"1"}`, `{"a":"1"}`, `{"A b":"1"}`, `{"a/b/c":"1"}`,
			`{"x.y/z":"1"}`, `{"a":1}`, `{"a":{}}`}
	case reflect.Struct:
		return []string{`null`, `{}`, `[]`, `""`, `{"nosuch":1}`, `1`}
	}
	return []string{`null`, `{}`}
}

// edges returns manifests in which one field has an edge value, for every field and every edge
// value, and the patched ones.
func edges() []manifest {
	var all []manifest
	for _, f := range fields() {
		values := edgeValues(f.t)
		values = append(values, special[plain(f.path)]...)
		seen := map[string]bool{}
		for _, value := range values {
			if seen[value] {
				continue
			}
			seen[value] = true
			base := baseFor(f.path)
			if !base.set(f.path, value) {
				continue
			}
			name := "edge " + written(f.path) + " = " + short(value)
			all = append(all, manifest{Name: name, Data: base.bytes()})
			// In the minimal pod, the fields around it have their defaults.
			if alone := parse(minimal); has(parse(full).value, f.path) && alone.set(f.path, value) {
				all = append(all, manifest{Name: name + " alone", Data: alone.bytes()})
			}
		}
	}
	return append(all, patched()...)
}

// baseFor returns the pod in which a field is set: the full one if it has the field or the one
// around it, else the minimal one. For a volume source it returns a minimal pod with a volume that
// has no source, because a volume may have only one.
func baseFor(path []any) tree {
	base := parse(full)
	if name := plain(path); has(base.value, path) || len(path) == 1 {
		return base
	} else if strings.HasPrefix(name, "spec.volumes.") {
		base = parse(minimal)
		base.set(parsePath("spec.volumes[0].name"), `"v"`)
		base.set(parsePath("spec.containers[0].volumeMounts"), `[{"name":"v","mountPath":"/v"}]`)
		return base
	} else if !has(base.value, path[:len(path)-1]) {
		return parse(minimal)
	}
	return base
}

// plain returns a path as text without indices.
func plain(path []any) string {
	var names []string
	for _, step := range path {
		if name, ok := step.(string); ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, ".")
}

func short(value string) string {
	if len(value) > 100 {
		return value[:40] + "…" + strconv.Itoa(len(value))
	}
	return value
}

// patched returns the manifests of the table patches.
func patched() []manifest {
	var all []manifest
	for _, p := range patches {
		base := parse(p.base)
		for i := 0; i+1 < len(p.sets); i += 2 {
			if !base.set(parsePath(p.sets[i]), p.sets[i+1]) {
				panic("cannot set " + p.sets[i])
			}
		}
		all = append(all, manifest{Name: "patch " + p.name, Data: base.bytes()})
	}
	return all
}

// seed is fixed so that the combinations are the same in every run; pairs is their number.
const (
	seed  = 1
	pairs = 400
)

// combinations returns manifests in which two or three fields of a full pod have edge values, to
// find rules between fields. It uses only values that can be decoded into the type of the field,
// because decoding errors hide all others.
func combinations() []manifest {
	random := rand.New(rand.NewPCG(seed, seed))
	var known []field
	for _, f := range fields() {
		top := plain(f.path)
		if base := parse(full); has(base.value, f.path) && top != "kind" && top != "apiVersion" {
			known = append(known, f)
		}
	}
	var all []manifest
	for n := range pairs {
		base := parse(full)
		var names []string
		for range 2 + random.IntN(2) {
			f := known[random.IntN(len(known))]
			values := append(edgeValues(f.t), special[plain(f.path)]...)
			value := values[random.IntN(len(values))]
			if sameKind(f.t, value) && base.set(f.path, value) {
				names = append(names, written(f.path)+" = "+short(value))
			}
		}
		all = append(all,
			manifest{Name: fmt.Sprintf("combination %d: %s", n, strings.Join(names, ", ")), Data: base.bytes()})
	}
	return all
}

// has reports whether value has a value other than null at path.
func has(value any, path []any) bool {
	for _, step := range path {
		switch at := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[at]
		case int:
			list, _ := value.([]any)
			if at >= len(list) {
				return false
			}
			value = list[at]
		}
	}
	return value != nil
}

func sameKind(t reflect.Type, value string) bool {
	return json.Unmarshal([]byte(value), reflect.New(t).Interface()) == nil
}
