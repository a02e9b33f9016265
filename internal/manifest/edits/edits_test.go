package edits

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestEdits: a change has the old and the new value of each field; elements of lists are compared by their names.
func TestEdits(t *testing.T) {
	t.Parallel()
	spec := func(containers ...v1.Container) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{Containers: containers}} }
	a, b := v1.Container{Name: "a", Image: "i:1"}, v1.Container{Name: "b", Image: "<&>"}
	edited := a
	edited.Image, edited.Args = "i:2", []string{"x"}
	for name, c := range map[string]struct {
		from, to *v1.Pod
		want     string
	}{
		"nothing": {spec(a, b), spec(a, b), ""},
		"fields":  {spec(a), spec(edited), `spec.containers[0].args:  → ["x"]; spec.containers[0].image: "i:1" → "i:2"`},
		"added":   {spec(a), spec(a, b), `spec.containers{b}:  → {"image":"<&>","name":"b","resources":{}}`},
		"removed": {spec(a, b), spec(b), `spec.containers{a}: {"image":"i:1","name":"a","resources":{}} → `},
		"order":   {spec(a, b), spec(b, a), `spec.containers: ["a","b"] → ["b","a"]`},
		"both":    {spec(a), spec(b, edited), `spec.containers{a}.args:  → ["x"]; spec.containers{a}.image: "i:1" → "i:2"; spec.containers{b}:  → {"image":"<&>","name":"b","resources":{}}`},
	} {
		var got []string
		for _, e := range Of(c.from, c.to) {
			got = append(got, e.Field+": "+e.Old+" → "+e.New)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), c.want)
		}
	}
	long := strings.Repeat("ü", 200)
	if value := []rune(valueText(long)); len(value) != 100 || value[99] != '…' {
		t.Errorf("a long value is %q", string(value))
	}
}
