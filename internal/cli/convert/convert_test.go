package convert

import (
	"errors"
	"strings"
	"testing"
)

func TestVariables(t *testing.T) {
	t.Parallel()
	env := map[string]string{"A": "a", "EMPTY": ""}
	for in, want := range map[string]string{
		"plain": "plain", "$A": "a", "${A}b": "ab", "$A/$A.x": "a/a.x", "$$A": "$A", "${EMPTY}": "", "${EMPTY:-d}": "d", "${EMPTY-d}": "",
		"${NONE-d}": "d", "${NONE:-${A}x}": "ax", "${A:+set}": "set", "${NONE:+set}": "", "${EMPTY+set}": "set", "${FILE}": "of the file", "${A:?no}": "a",
		"${NONE:?say}": "!the variable NONE is required: say", "${A": "!${ has no }", "cost: $ 5": "!$ has no name", "${1}": "!has no name", "${A!x}": "!is not known",
	} {
		c := &converter{Options: Options{
			Env: func(name string) (string, bool) { v, is := env[name]; return v, is },
			ReadFile: func(path string) ([]byte, error) {
				if path != ".env" {
					return nil, errors.New("asked for " + path)
				}
				return []byte("# comment\nFILE='of the file'\nA=other\n"), nil
			},
		}}
		got, err := c.expand(in)
		problem, fails := strings.CutPrefix(want, "!")
		if fails != (err != nil) || fails && !strings.Contains(err.Error(), problem) || !fails && got != want {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", " a  b ": "a|b", `a "b c" d`: "a|b c|d", `'it''s' "\"x\""`: `its|"x"`, `a\ b ""`: "a b|", `'a\b'`: `a\b`,
	} {
		if got, err := split(in); err != nil || strings.Join(got, "|") != want {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
	for _, bad := range []string{`a "b`, `a\`} {
		if got, err := split(bad); err == nil {
			t.Errorf("%s: %q", bad, got)
		}
	}
}

func TestQuantity(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"64m": "64Mi", "1g": "1Gi", "512kb": "512Ki", "100b": "100", "0.5": "500m", "2": "2"} {
		if got, err := quantity(in); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", in, got.String(), err)
		}
	}
	if _, err := quantity("much"); err == nil {
		t.Error("no error")
	}
}

// FuzzFile: nothing that a file contains makes the conversion panic or invent a document.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"services: {a: {image: b, ports: ['1:2'], environment: [A], healthcheck: {test: [CMD, a]}, deploy: {resources: {limits: {cpus: 1}}}}}",
		"services: {a: {volumes: [':', 'a:', {type: bind}], depends_on: [b], sysctls: {a: 1}, secrets: [1], env_file: [{}]}}", "services: []",
		"{kind: List, items: [1, {kind: Pod}]}", "{kind: Deployment, metadata: 1, spec: {template: {spec: []}}}",
		"{kind: StatefulSet, spec: {volumeClaimTemplates: [1], template: {spec: {volumes: 7}}}}", "{kind: CronJob, spec: {jobTemplate: {spec: {template: {}}}}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		made, err := File(text, Options{
			Env:      func(string) (string, bool) { return "", false },
			ReadFile: func(string) ([]byte, error) { return nil, errors.New("no such file or directory") },
		})
		if err != nil && len(made.Documents) > 0 {
			t.Errorf("%v, and %d documents", err, len(made.Documents))
		}
	})
}
