package convert

import (
	"errors"
	"fmt"
	"runtime"
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
		got, err := c.expand(in, 0)
		problem, fails := strings.CutPrefix(want, "!")
		if fails != (err != nil) || fails && !strings.Contains(err.Error(), problem) || !fails && got != want {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
}

// TestHostileFiles: a file that grows without bound, by its variables or by the files that it names, is refused. What
// is said about a file, and the work for it, is in proportion to its size: memory is counted instead of time.
func TestHostileFiles(t *testing.T) {
	const mib = 1 << 20
	long := strings.Repeat("k", mib/4)
	for _, c := range []struct{ what, text, named, want string }{
		{"nested", "services: {a: {image: '" + strings.Repeat("${A-", 2000) + "x" + strings.Repeat("}", 2000) + "'}}", "", "services.a.image: has variables more than 100 deep"},
		{"one long text", "services: {a: {x: " + strings.Repeat("$B", 100) + "}}", "B=" + strings.Repeat("b", mib/8), "services.a.x: has more than 10 MiB"},
		{"many texts", "services: {a: {x: [" + strings.Repeat("$B,", 100) + "]}}", "B=" + strings.Repeat("b", mib/8), "services.a.x[80]: has more than 10 MiB"},
		{"many files", "services: {a: {image: x, env_file: [" + strings.Repeat("f,", 3000) + "]}}", "B=" + strings.Repeat("b", mib), "f: with the files before it, has more than 10 MiB"},
		{"file read often", "services: {a: {image: '" + strings.Repeat("$C$D", 3000) + "'}}", "B=" + strings.Repeat("b", mib), ""},
		{"errors below a long name", "services: {a: {? " + long + " : [" + strings.Repeat("$,", 3000) + "]}}", "", "$ has no name"},
		{"texts below a long name", "services: {a: {image: x, ? " + long + " : [" + strings.Repeat("x,", 3000) + "]}}", "", ""},
		{"fields of a long service", "services: {? " + long + " : {image: x, " + fields(3000) + "}}", "", ""},
		{"services before a long one", "services: {? " + long + " : {image: x, depends_on: [" + numbered(1000, "f%d, ") + "]}, " + numbered(1000, "f%d: {image: x}, ") + "}", "", ""},
		{"fields of a long pod", "{apiVersion: v1, kind: Pod, metadata: {name: " + long + "}, spec: {" + fields(3000) + "}}", "", ""},
		{"items of a long kind", "{kind: " + long + "List, items: [" + strings.Repeat("{},1,", 3000) + "]}", "", "kkk…: is not an object"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		made, err := File([]byte(c.text), Options{
			Dir: "/", Env: func(string) (string, bool) { return "", false },
			ReadFile: func(string) ([]byte, error) { return []byte(c.named), nil },
		})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if failed := strings.Join(made.Failed, "\n"); c.want != "" && !strings.Contains(failed, c.want) {
			t.Errorf("%s: %.300q", c.what, failed)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) / mib; used > 300 {
			t.Errorf("%s: used %d MiB", c.what, used)
		}
	}
}

func fields(n int) string { return numbered(n, "f%d: x, ") }

func numbered(n int, format string) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

// TestVariableTwice: the last value counts, and the variable keeps its place.
func TestVariableTwice(t *testing.T) {
	t.Parallel()
	made, err := File([]byte("services: {a: {image: x, env_file: f, environment: [B=3, C=4, A=5]}}"), Options{
		Env:      func(string) (string, bool) { return "", false },
		ReadFile: func(string) ([]byte, error) { return []byte("A=1\nB=2\nA=2\n"), nil },
	})
	want := "  - env:\n    - name: A\n      value: \"5\"\n    - name: B\n      value: \"3\"\n    - name: C\n"
	if err != nil || len(made.Documents) != 1 || !strings.Contains(string(made.Documents[0]), want) {
		t.Errorf("%v, %s", err, made.Documents)
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
		if got, err := amount(in); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", in, got.String(), err)
		}
	}
	if _, err := amount("much"); err == nil {
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

// TestNameOfAStaticPod: the name of a pod that a kubelet or podrun made of a manifest is that of the manifest again.
func TestNameOfAStaticPod(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"metadata: {name: web-n1, annotations: {kubernetes.io/config.source: file}}\nspec: {nodeName: n1}": "web",
		"metadata: {name: web-n1, annotations: {kubernetes.io/config.source: http}}\nspec: {nodeName: n1}": "web",
		"metadata: {name: web-n2, annotations: {kubernetes.io/config.source: file}}\nspec: {nodeName: n1}": "web-n2",
		"metadata: {name: web-n1, annotations: {kubernetes.io/config.source: api}}\nspec: {nodeName: n1}":  "web-n1",
		"metadata: {name: web-n1}\nspec: {nodeName: n1}":                                                   "web-n1",
		"metadata: {name: web-, annotations: {kubernetes.io/config.source: file}}\nspec: {}":               "web-",
	} {
		made, err := File([]byte("apiVersion: v1\nkind: Pod\n"+text), Options{})
		if err != nil || len(made.Documents) != 1 || !strings.Contains(string(made.Documents[0]), "name: "+want+"\n") {
			t.Errorf("%s: %s, %v", text, made.Documents, err)
		}
		if said := strings.Contains(strings.Join(made.Dropped, "\n"), "metadata.name: without the node's name it is web"); said != (want == "web") {
			t.Errorf("%s: %s", text, made.Dropped)
		}
	}
}

// TestUnreadable: a field whose value cannot be read has failed, wherever it is; one that is not known is left out.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	const spec = "spec: {containers: [{name: c, image: x, futureField: 1, env: [{name: PORT, value: 8080}]}]}"
	for text, path := range map[string]string{
		"{kind: Pod, metadata: {name: a}, " + spec + "}":                                                "spec.",
		"{kind: List, items: [{kind: Pod, metadata: {name: a}, " + spec + "}]}":                         "spec.",
		"{kind: Deployment, metadata: {name: a}, spec: {template: {" + spec + "}}}":                     "spec.template.spec.",
		"{kind: CronJob, metadata: {name: a}, spec: {jobTemplate: {spec: {template: {" + spec + "}}}}}": "spec.jobTemplate.spec.template.spec.",
		"{kind: ReplicationController, metadata: {name: a}, spec: {template: {" + spec + "}}}":          "spec.",
	} {
		made, err := File([]byte("{apiVersion: v1, "+text[1:]), Options{})
		failed, dropped := strings.Join(made.Failed, "\n"), strings.Join(made.Dropped, "\n")
		if err != nil || !strings.HasSuffix(failed, ": "+path+"containers[0].env[0].value: must be a string, not the number 8080; put it in quotes") {
			t.Errorf("%s: failed %s, %v", text, failed, err)
		}
		if !strings.HasSuffix(dropped, ": "+path+"containers[0].futureField: unknown field") || len(made.Documents) != 1 {
			t.Errorf("%s: left out %s, %s", text, dropped, made.Documents)
		}
	}
	for text, want := range map[string]string{
		"{kind: Deployment, metadata: {name: a}, spec: {replicas: '2', template: {spec: {}}}}": "spec.replicas: must be an integer",
		"{kind: Pod, metadata: {name: a, labels: {a: 1}}}":                                     "metadata.labels[a]: must be a string",
		"{kind: Pod, metadata: {name: a}, " + fields(100) + "z: 1, spec: 1}":                   "only the first 100 fields are named",
	} {
		made, err := File([]byte(text), Options{})
		if err != nil || len(made.Failed) != 1 || !strings.Contains(made.Failed[0], want) {
			t.Errorf("%s: %s, %v", text, made.Failed, err)
		}
	}
}

// TestDependsOn: a service starts when those run that it depends on, and not after their end, where compose does so; if
// that cannot be, it is said.
func TestDependsOn(t *testing.T) {
	t.Parallel()
	const waits, never = "web starts only after this has ended with success", "  restartPolicy: Never\n"
	const end, healthy = "{db: {condition: service_completed_successfully}}", "{db: {condition: service_healthy}}"
	for _, c := range []struct{ db, web, other, policy, said string }{
		{"", "[db]", "[]", "", "restart: becomes always, so that web starts when this is ready"},
		{"", "{db: {condition: service_started}}", "[]", "", "restart: becomes always"},
		{"", "{db: }", "[]", "", "restart: becomes always"},
		{"restart: ", "{db: {condition: service_healthy}}", "[]", "", "restart: becomes always"},
		{"restart: unless-stopped", healthy, "[]", "", ""},
		{"restart: 'no'", "[db]", "[]", never, waits + "; with restart: always"},
		{"restart: no", "[db]", "[]", never, waits + "; with restart: always"},
		{"restart: on-failure", healthy, "[]", "  restartPolicy: OnFailure\n", waits + "; with restart: always"},
		{"", end, "[]", never, ""},
		{"restart: 'no'", end, "[]", never, ""},
		{"", "[db]", end, never, waits + ", because x waits for that"},
		{"restart: always", "[db]", end, "", ""},
		{"", "[]", "[]", never, ""},
	} {
		text := "services:\n  web: {image: w, restart: always, depends_on: " + c.web + "}\n" +
			"  x: {image: x, restart: always, depends_on: " + c.other + "}\n  db:\n    image: d\n    " + c.db + "\n"
		made, err := File([]byte(text), Options{})
		if err != nil || len(made.Documents) != 3 {
			t.Fatalf("%s: %v, %v", text, err, made.Failed)
		}
		db, policy := string(made.Documents[0]), ""
		if i := strings.Index(db, "  restartPolicy"); i >= 0 {
			policy = db[i:]
		}
		said := strings.Join(made.Dropped, "\n")
		if policy != c.policy || !strings.Contains(said, c.said) || (said == "") != (c.said == "") || strings.Contains(said, "\n") {
			t.Errorf("%s%s, said: %s", text, db, said)
		}
	}
}

// TestUnreadableService: a value of a service that cannot be read has failed.
func TestUnreadableService(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"privileged: 'yes'": "privileged: must be true or false", "tty: [true]": "tty: must be true or false",
		"hostname: {a: b}": "hostname: must be a text", "user: [1]": "user: must be a text",
		"environment: {A: [1]}": "environment.A: must be a text", "shm_size: much": `shm_size: "much" is no amount`,
		"healthcheck: {test: a, retries: few}": "healthcheck.retries: must be a number",
		"privileged: 'true'":                   "", "hostname: ''": "", "tty: ": "", "environment: {A: 1, B: }": "", "environment: [A=1]": "",
	} {
		made, err := File([]byte("services: {a: {image: x, "+field+"}}"), Options{
			Env: func(string) (string, bool) { return "", false }, ReadFile: func(string) ([]byte, error) { return nil, nil },
		})
		failed := strings.Join(made.Failed, "\n")
		if err != nil || !strings.Contains(failed, want) || (failed == "") != (want == "") || (len(made.Documents) == 0) != (want != "") {
			t.Errorf("%s: %s, %v", field, failed, err)
		}
	}
}
