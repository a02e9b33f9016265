package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// minimal is a pod with only the required fields.
const minimal = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`

// full is a pod with many fields set, in which single fields are set to edge values.
const full = `{"apiVersion":"v1","kind":"Pod",
"metadata":{"name":"full","namespace":"n","labels":{"k":"v"},"annotations":{"k":"v"}},
"spec":{
 "restartPolicy":"OnFailure","terminationGracePeriodSeconds":5,"dnsPolicy":"Default","schedulerName":"s",
 "enableServiceLinks":false,"priorityClassName":"p","priority":1,"preemptionPolicy":"Never","os":{"name":"linux"},
 "tolerations":[{"key":"k","operator":"Equal","value":"v","effect":"NoExecute","tolerationSeconds":1},{"operator":"Exists"}],
 "volumes":[{"name":"e","emptyDir":{}},{"name":"h","hostPath":{"path":"/h","type":"Directory"}}],
 "initContainers":[{"name":"a","image":"i:3"},{"name":"b","image":"i:4","restartPolicy":"Always"}],
 "containers":[
  {"name":"c","image":"i:1","imagePullPolicy":"Never","command":["a"],"args":["b"],"workingDir":"/w",
   "env":[{"name":"A","value":"1"},{"name":"B","value":"$(A)"}],
   "ports":[{"name":"web","containerPort":80,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}],
   "resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m","memory":"1Mi"}},
   "volumeMounts":[{"name":"e","mountPath":"/e"},{"name":"h","mountPath":"/h","readOnly":true}],
   "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","securityContext":{"privileged":false}},
  {"name":"d","image":"i:2","restartPolicy":"Never",
   "restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[1,2]}}]}]}}`

// tree is a decoded document that can be changed. Numbers and values that are set keep their
// spelling.
type tree struct{ value any }

func parse(text string) tree {
	var t tree
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&t.value); err != nil {
		panic(fmt.Sprintf("%v: %s", err, text)) // a mistake in this program's own text
	}
	return t
}

// bytes returns the tree as JSON, which is also YAML.
func (t tree) bytes() []byte {
	text, err := json.MarshalIndent(t.value, "", " ")
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

// set sets the value at a path of keys and list indices to text, which is JSON, and creates missing
// objects and lists on the path. It returns false and changes nothing if the path leads through a
// value of another kind.
func (t *tree) set(path []any, text string) bool {
	value, ok := put(t.value, path, json.RawMessage(text))
	if ok {
		t.value = value
	}
	return ok
}

func put(into any, path []any, value any) (any, bool) {
	if len(path) == 0 {
		return value, true
	}
	switch at := path[0].(type) {
	case string:
		if into == nil {
			into = map[string]any{}
		}
		object, ok := into.(map[string]any)
		if !ok {
			return nil, false
		}
		object[at], ok = put(object[at], path[1:], value)
		return object, ok
	case int:
		if into == nil {
			into = []any{}
		}
		list, ok := into.([]any)
		if !ok {
			return nil, false
		}
		for len(list) <= at {
			list = append(list, nil)
		}
		list[at], ok = put(list[at], path[1:], value)
		return list, ok
	}
	return nil, false
}

// written returns a path as text, such as spec.containers[0].name.
func written(path []any) string {
	var b strings.Builder
	for _, step := range path {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&b, "[%d]", i)
		} else {
			fmt.Fprintf(&b, ".%s", step)
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}

// parsePath is the inverse of written, for names without dots.
func parsePath(text string) []any {
	var path []any
	for _, part := range strings.Split(strings.ReplaceAll(text, "[", ".["), ".") {
		var i int
		if _, err := fmt.Sscanf(part, "[%d]", &i); err == nil {
			path = append(path, i)
		} else if part != "" {
			path = append(path, part)
		}
	}
	return path
}

func fileName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f && !strings.ContainsRune(`/\:*?"<>|'$&;()`, r) {
			return r
		}
		return '_'
	}, name)
	if len(clean) > 120 {
		clean = clean[:120]
	}
	if !strings.HasSuffix(clean, ".yaml") && !strings.HasSuffix(clean, ".json") {
		clean += ".yaml"
	}
	return clean
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }
