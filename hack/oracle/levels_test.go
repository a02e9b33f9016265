package main

import (
	"fmt"
	"slices"
	"testing"
)

func TestCompareLevels(t *testing.T) {
	t.Parallel()
	at := func(messages ...string) map[string][]finding {
		out := map[string][]finding{}
		for _, m := range messages {
			out["baseline"] = append(out["baseline"], finding{Field: "spec", Message: m})
		}
		return out
	}
	for _, c := range []struct {
		name         string
		podrun, kube verdict
		want         []string
	}{
		{"both take it", verdict{}, verdict{}, nil},
		{"both refuse it", verdict{Levels: at("Forbidden: no: a (b)")}, verdict{Levels: at("a (b)")}, nil},
		{"the policy alone", verdict{}, verdict{Levels: at("a")}, []string{"Kubernetes' policy: --pod-security baseline: a"}},
		{"for another reason", verdict{Levels: at("Forbidden: no: b")}, verdict{Levels: at("a")},
			[]string{"Kubernetes' policy: --pod-security baseline: a", "podrun: --pod-security baseline: spec: Forbidden: no: b"}},
		{"podrun alone", verdict{Levels: at("Forbidden: no: b")}, verdict{}, []string{"podrun: --pod-security baseline: spec: Forbidden: no: b"}},
		{"refused whatever the level", verdict{Errors: []finding{{Field: "a"}}, Levels: map[string][]finding{"baseline": {{}}, "restricted": {{}}}}, verdict{Levels: at("a")}, nil},
		{"taken at a level alone", verdict{Errors: []finding{{Field: "a"}}, Levels: map[string][]finding{"baseline": {{}}}}, verdict{},
			[]string{"Kubernetes' policy: --pod-security restricted: podrun takes what it refuses without a level"}},
		{"a container with too much", verdict{Escapes: []string{"c: has CAP_SYS_ADMIN"}}, verdict{}, []string{"the containers' specs: : c: has CAP_SYS_ADMIN"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range compareLevels(c.podrun, c.kube) {
				got = append(got, fmt.Sprint(d))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// No entry of meant may explain that podrun accepts what the policy refuses, or the escapes of a
// restricted container.
func TestNothingExcusesAnEscape(t *testing.T) {
	t.Parallel()
	for _, m := range meant {
		if m.by == ofPolicy || m.by == ofEscapes {
			t.Errorf("an excuse: %s", m.what)
		}
	}
}

// The corpus must have pods that each level allows and pods that it refuses; otherwise the
// comparison shows nothing.
func TestRestrictionsAreAllowedAndNot(t *testing.T) {
	t.Parallel()
	k, err := newKubernetes()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, m := range restrictions() {
		v := k.judge(m)
		if len(v.Errors) > 0 {
			continue
		}
		for _, level := range levels {
			counts[fmt.Sprint(level, " ", len(v.Levels[string(level)]) == 0)]++
		}
	}
	for _, level := range levels {
		for _, allowed := range []bool{true, false} {
			if n := counts[fmt.Sprint(level, " ", allowed)]; n < 100 {
				t.Errorf("%s, allowed %v: %d", level, allowed, n)
			}
		}
	}
}
