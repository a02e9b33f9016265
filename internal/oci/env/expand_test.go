package env

import (
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// TestBombs: a short manifest, or a file that a container writes, has variables that are longer than the
// machine's memory, or that take the square of their number.
func TestBombs(t *testing.T) {
	t.Parallel()
	doubling := []v1.EnvVar{{Name: "A0", Value: strings.Repeat("x", 1024)}}
	for i := range 60 {
		before := "$(A" + strconv.Itoa(i) + ")"
		doubling = append(doubling, v1.EnvVar{Name: "A" + strconv.Itoa(i+1), Value: before + before})
	}
	many := func(value string) []v1.EnvVar {
		all := []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 100<<10)}}
		for i := range 100_000 {
			all = append(all, v1.EnvVar{Name: "V" + strconv.Itoa(i), Value: value})
		}
		return all
	}
	sameFile := many("")[1:]
	for i := range sameFile {
		sameFile[i].ValueFrom = new(ofFile("long", "A", false))
	}
	sameMap := many("")[1:]
	for i := range sameMap {
		sameMap[i].ValueFrom = new(ofMap("m", "long", false))
	}
	for name, c := range map[string]struct {
		env  []v1.EnvVar
		want string
	}{
		"doubling":        {doubling, "the value of variable A8 has more than 131072 bytes"},
		"many":            {many("$(A)"), "the value of variable V60 makes all of them longer than 6291456 bytes"},
		"long":            {many(strings.Repeat("y", 1000)), "the value of variable V6189 makes all of them longer"},
		"references":      {append(many("")[:1], v1.EnvVar{Name: "B", Value: strings.Repeat("$(A)", 1<<20)}), "the value of variable B has more than 131072 bytes"},
		"one ConfigMap":   {sameMap, "the variables have more than 6291456 bytes together"},
		"one file":        {sameFile, ""},
		"many references": {append(many("$(V0)"), v1.EnvVar{Name: "B", Value: strings.Repeat("$(V1)", 20_000)}), ""},
	} {
		in := inside(func(m *v1.Container) { m.Env = c.env })
		in.Files[pod.FileKey{Volume: "v", Path: "long"}] = "A='x'\n" + strings.Repeat("B='y'\n", 100_000)
		in.Objects.ConfigMaps[pod.Key{Namespace: "ns", Name: "m"}].Data["long"] = strings.Repeat("x", 1<<20)
		began := time.Now()
		_, err := Resolve(in)
		if text := "no error"; (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			if err != nil {
				text = err.Error()
			}
			t.Errorf("%s: %s", name, text)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
}

// TestLongCommand: arguments are not longer than a process can have either.
func TestLongCommand(t *testing.T) {
	t.Parallel()
	vars := []pod.Variable{{Name: "A", Value: strings.Repeat("x", 100<<10)}}
	for name, args := range map[string][]string{
		"one":  {strings.Repeat("$(A)", 1<<20)},
		"many": strings.Split(strings.Repeat("$(A) ", 1<<16), " "),
	} {
		if _, err := ExpandAll(args, vars); err == nil || !strings.HasPrefix(err.Error(), "argument ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	unclosed := strings.Repeat("$(", 60_000)
	for in, want := range map[string]string{unclosed: unclosed, unclosed + ")": unclosed + ")"} {
		if got, _, err := Expand(in, vars); got != want || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	if _, _, err := Expand(strings.Repeat("$(", 5<<20), vars); err == nil {
		t.Error("10 MiB are accepted")
	}
}
