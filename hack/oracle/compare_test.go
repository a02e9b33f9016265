package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	pod := func(spec string) []json.RawMessage {
		return []json.RawMessage{json.RawMessage(`{"kind":"Pod","metadata":{"name":"a"},"spec":` + spec + `}`)}
	}
	bad := func(f ...finding) verdict { return verdict{Errors: f} }
	for _, c := range []struct {
		name         string
		podrun, kube verdict
		want         []string
	}{
		{"both the same", bad(finding{Field: "a"}), bad(finding{Field: "a", Message: "other words"}), nil},
		{"podrun takes it", verdict{Pods: pod(`{}`)}, bad(finding{Field: "a", Message: "m"}), []string{"Kubernetes: a: m"}},
		{"Kubernetes takes it", bad(finding{Field: "a", Message: "m"}), verdict{Pods: pod(`{}`)}, []string{"podrun: a: m"}},
		{"Kubernetes cannot decode it", verdict{Pods: pod(`{}`)}, bad(finding{Message: "m", Stop: true}), []string{"Kubernetes: : m"}},
		{"neither can", bad(finding{Message: "n"}), bad(finding{Message: "m", Stop: true}), nil},
		{"another type error", bad(finding{Field: "spec.x"}), bad(finding{Field: anyField + "y", Message: "m", Stop: true}), []string{"Kubernetes: " + anyField + "y: m"}},
		{"unsupported, and wrong inside", bad(finding{Field: "a.b", Refused: true}), bad(finding{Field: "a.b[0].c"}), nil},
		{"unsupported, and wrong elsewhere", bad(finding{Field: "a.b", Refused: true}), bad(finding{Field: "a.bc", Message: "m"}), []string{"Kubernetes: a.bc: m"}},
		{"unsupported alone", bad(finding{Field: "a", Refused: true}), verdict{Pods: pod(`{}`)}, nil},
		{"a typo and what follows",
			bad(finding{Field: "a.imgae", Message: `unknown field, did you mean "image"?`}),
			bad(finding{Field: "a.imgae", Strict: true}, finding{Field: "a.image"}), nil},
		{"a typo and what does not follow",
			bad(finding{Field: "a.imgae", Message: `unknown field, did you mean "image"?`}),
			bad(finding{Field: "a.imgae", Strict: true}, finding{Field: "a.name", Message: "m"}), []string{"Kubernetes: a.name: m"}},
		{"pods the same", verdict{Pods: pod(`{"hostname":"a"}`)}, verdict{Pods: pod(`{"hostname":"a"}`)}, nil},
		{"pods that differ", verdict{Pods: pod(`{"hostname":"a"}`)}, verdict{Pods: pod(`{}`)}, []string{`pod: spec.hostname: "a" in podrun, null in Kubernetes`}},
		{"a pod more", verdict{Pods: pod(`{}`)}, verdict{}, []string{"pod: : podrun makes 1 pods of it, Kubernetes 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range compare(c.podrun, c.kube) {
				got = append(got, fmt.Sprint(d))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Kubernetes' side says what is known of it.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	k, err := newKubernetes()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		minimal: nil,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"A"},"spec":{"contaners":[],"restartPolicy":"x"}}`: {
			"spec.contaners", "metadata.name", "spec.containers", "spec.restartPolicy"},
		"apiVersion: v1\nkind: Pod\nspec: {hostNetwork: 1}\n": {anyField + "hostNetwork"},
		"a: 1\na: 2\n": {""},
	} {
		v := k.judge(manifest{Data: []byte(text)})
		var got []string
		for _, e := range v.Errors {
			got = append(got, e.Field)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// The test fails if the corpus lost its cases: without cases there are no differences either.
func TestCorpus(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]func() []manifest{"oddities": oddities, "spellings": spellings, "edges": edges, "combinations": combinations, "restrictions": restrictions} {
		if n := len(part()); n < 100 {
			t.Errorf("%s: %d", name, n)
		}
		if !slices.EqualFunc(part(), part(), func(a, b manifest) bool { return a.Name == b.Name && string(a.Data) == string(b.Data) }) {
			t.Errorf("%s differ from run to run", name)
		}
	}
}
