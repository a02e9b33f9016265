package decode

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// texts are the documents as line:canonical JSON, then the errors.
func texts(data string) string {
	docs, errs := Parse([]byte(data))
	var words []string
	for _, d := range docs {
		words = append(words, fmt.Sprintf("%d:%s", d.Line, Canonical(d.Value)))
	}
	for _, e := range errs {
		words = append(words, "error "+e.Error())
	}
	return strings.Join(words, " | ")
}

func TestParse(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"comments", "# a\n---\n# b\n", ""},
		{"null", "null\n---\n~\n", ""},
		{"one", "a: b\n", `1:{"a":"b"}`},
		{"two", "a: b\n---\nc: d", `1:{"a":"b"} | 3:{"c":"d"}`},
		{"leading markers", "---\n---\na: b\n---\n", `3:{"a":"b"}`},
		{"marker with comment", "a: b\n--- # two\nc: d\n", `1:{"a":"b"} | 2:{"c":"d"}`},
		{"content on the marker's line", "a: b\n--- {c: d}\n", `1:{"a":"b"} | 2:{"c":"d"}`},
		{"end marker", "a: b\n...\nc: d\n", `1:{"a":"b"} | 3:{"c":"d"}`},
		{"no marker", "a: |\n ---\n x\n---b: c\n", `1:{"---b":"c","a":"---\u000ax\u000a"}`},
		{"crlf", "a: b\r\n---\r\nc: d\r\n", `1:{"a":"b"} | 3:{"c":"d"}`},
		{"byte order marks", "\ufeffa: b\n\ufeff---\n\ufeffc: d\n", `1:{"a":"b"} | 3:{"c":"d"}`},
		{"carriage returns in text", "a: \"b\\rc\"\rd: e\n", `1:{"a":"b\u000dc","d":"e"}`},
		{"hidden second document", "a: b\r---\rc: d\n", "error line 1: holds a second document that does not begin on a line of its own"},
		{"json", `{"a": [1, 2.0, 1e3, true, null, "x\/\ud83d\ude00"]}`, `1:{"a":[1,2,1000,true,null,"x/😀"]}`},
		{"json stream", "\n{\"a\": 1} {\"b\": 2}\n\n{\"c\": 3}", `2:{"a":1} | 2:{"b":2} | 4:{"c":3}`},
		{"json documents", "{\"a\": 1}\n---\n{\"b\": 2}", `1:{"a":1} | 3:{"b":2}`},
		{"json, duplicates", "{\"a\": 1,\n\"b\": [{\"c\": 1,\n\"c\": 2}]}", `1:{"a":1,"b":[{"c":2}]} | error line 3: b[0].c: duplicate key "c"`},
		{"json, truncated", "{\"a\": 1,\n\"b\"", "error line 2: not JSON: it ends too early"},
		{"json, wrong", "{\"a\": 1,\n\"b\" 2}", `error line 2: not JSON: invalid character '2' after object key`},
		{"braces of yaml", "{a: b, c: [d,],}", `1:{"a":"b","c":["d"]}`},
		{"yaml, duplicates", "a:\n- b: 1\n  b: 2\n", `1:{"a":[{"b":2}]} | error line 3: a[0].b: duplicate key "b"`},
		{"tab", "a:\n\tb: c\n", "error line 2: found character that cannot start any token (indented by a tab; YAML wants spaces)"},
		{"unclosed", "a: [b\nc: d\n", "error line 2: did not find expected ',' or ']'"},
		{"after the first document", "a: b\n---\nc: {\n", "1:{\"a\":\"b\"} | error line 3: did not find expected node content"},
		{"not utf-8", "a: b\nc: \xff\n", "error line 2: is not UTF-8 text"},
		{"alias to itself", "a: &a [*a]\n", "error line 1: expands to more than 10 MiB by its aliases"},
		{"no value: alias", "pw: *secret\n", "error line 1: unknown anchor referenced (a value that begins with * or & must be quoted)"},
		{"no value: whole number", "pw: !!int secret\n", "error line 1: cannot decode !!str as a !!int"},
		{"no value: number", "pw: !!float se`cret\n", "error line 1: cannot decode !!str as a !!float"},
		{"no value: time", "pw: !!timestamp secret\n", "error line 1: cannot decode !!str as a !!timestamp"},
		{"alias", "a: &a [1]\nb: *a\n", `1:{"a":[1],"b":[1]}`},
		{"yaml 1.1", "[y, no, 010, 0x10, 1_000, 22:22, 2001-01-01, 80.0, 1e3]", `1:[true,false,8,16,1000,"22:22","2001-01-01",80,1000]`},
		{"binary and tags", "a: !!binary aGk=\nb: !custom c\nc: \"\\0\"\n", `1:{"a":"hi","b":"c","c":"\u0000"}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := texts(c.in); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	if _, errs := Parse(make([]byte, MaxSize+1)); len(errs) != 1 || errs[0].Message != "has more than 10 MiB" {
		t.Errorf("errors %v", errs)
	}
	// One long string and many aliases: few nodes, much text.
	long := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 20) + "]\n"
	if _, errs := Parse([]byte(long)); len(errs) != 1 || !strings.Contains(errs[0].Message, "aliases") {
		t.Errorf("errors %v", errs)
	}
	deep := strings.Repeat("[", 100_000)
	for _, text := range []string{deep, `{"a":` + deep, strings.Repeat(`{"a":`, 100_000), "a: " + deep} {
		if _, errs := Parse([]byte(text)); len(errs) == 0 {
			t.Errorf("no error for %.10s…", text)
		}
	}
	// Lines of many errors in a large file are found in reasonable time.
	many := `{"a":[` + strings.Repeat(`{"b":1,"b":2},`+"\n", 100_000) + `{}]}`
	began := time.Now()
	docs, errs := Parse([]byte(many))
	if len(docs) != 1 || len(errs) != MaxErrors || docs[0].LineOf("a[99999].b") != 100_000 || time.Since(began) > time.Minute {
		t.Errorf("%d documents, %d errors, %s", len(docs), len(errs), time.Since(began))
	}
}

func TestLineOf(t *testing.T) {
	t.Parallel()
	yaml := `# a comment
metadata:
  labels: {a.b/c: x, "d[0]": y}
spec: &spec
  list:
  - name: one

  -
    name: two
    map:
      a.b: 1
      a: {b: 2}
other:
  <<: *spec
`
	cases := map[string]int{
		"": 2, "metadata": 2, "metadata.labels[a.b/c]": 3, "metadata.labels[d[0]]": 3, "metadata.name": 2,
		"spec.list": 5, "spec.list[0]": 6, "spec.list[0].name": 6, "spec.list[1]": 9, "spec.list[1].name": 9,
		"spec.list[1].image": 9, "spec.list[1].map[a.b]": 11, "spec.list[1].map.a.b": 11, "spec.list[1].map[a].c": 12,
		"spec.list[7].name": 5, "spec.none.deeper": 4, "other.list[1].map.a": 12, "none": 2,
	}
	check := func(text string, shift int) {
		docs, errs := Parse([]byte(text))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for path, want := range cases {
			if got := docs[len(docs)-1].LineOf(path); got != want+shift {
				t.Errorf("%q: line %d, want %d", path, got, want+shift)
			}
		}
	}
	check(yaml, 0)
	check("x: y\n---\n"+yaml, 2)
	check(strings.ReplaceAll(yaml, "\n", "\r\n"), 0)
	json := "\n{\"a\": {\"b.c\": 1,\n\"d\": [{\"e\": 1},\n\n{\"f\": 2}]}}"
	docs, _ := Parse([]byte("x: y\n---" + json))
	for path, want := range map[string]int{"": 3, "a.b.c": 3, "a.d": 4, "a.d[0].e": 4, "a.d[1]": 6, "a.d[1].f": 6, "a.g": 3} {
		if got := docs[1].LineOf(path); got != want {
			t.Errorf("JSON %q: line %d, want %d", path, got, want)
		}
	}
}

// Values that are only spelled differently have the same canonical form.
func TestCanonical(t *testing.T) {
	t.Parallel()
	same := [][]string{
		{"{a: 1, b: [x, 'z']}", "b:\n- \"x\" # comment\n- z\na: 0x1\n", `{"b":["x","z"],"a":1.0}`},
		{"a: 123456789012345678901234567890", `{"a":123456789012345678901234567890}`},
		{"a: 18446744073709551615", `{"a":18446744073709551615}`},
		{"a: 0.5", `{"a":5e-1}`, `{"a":0.50}`},
		{"a: 1e6", `{"a":1000000}`},
		{"a: -0.0", `{"a":0}`},
		{`a: "é\u00e9\t<&>"`, `{"a":"é\u00e9\u0009<&>"}`},
	}
	for _, texts := range same {
		var first string
		for i, text := range texts {
			docs, errs := Parse([]byte(text))
			if len(docs) != 1 || len(errs) > 0 {
				t.Fatalf("%q: %v", text, errs)
			}
			got := string(Canonical(docs[0].Value))
			if i == 0 {
				first = got
			}
			if got != first {
				t.Errorf("%q is %s, want %s", text, got, first)
			}
			if !json.Valid([]byte(got)) {
				t.Errorf("%q is %s", text, got)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	likely := []Location{{"spec", reflect.TypeFor[v1.PodSpec]()}, {"spec.containers[0]", reflect.TypeFor[v1.Container]()}}
	cases := []struct{ in, want, left string }{
		{`{"spec":{"hostname":"x"}}`, "", `{"spec":{"hostname":"x"}}`},
		{`{"spec":{"hostNmae":"x"}}`, `spec.hostNmae: unknown field, did you mean "hostname"?`, `{"spec":{}}`},
		{`{"spec":{"xyzzy":"x"}}`, `spec.xyzzy: unknown field`, `{"spec":{}}`},
		{`{"command":["x"]}`, `command: unknown field, did you mean spec.containers[0].command?`, `{}`},
		{`{"spec":{"containers":[{"env":[{"name":1}]}]}}`, `spec.containers[0].env[0].name: must be a string, not the number 1; put it in quotes`,
			`{"spec":{"containers":[{"env":[{}]}]}}`},
		{`{"spec":{"containers":["x",null]}}`, `spec.containers[0]: must be an object, not the string "x"`, `{"spec":{"containers":[null,null]}}`},
		{`{"spec":{"hostPID":"true","priority":1.5}}`,
			`spec.hostPID: must be a boolean, not the string "true"; leave the quotes out | spec.priority: must be an integer of at most 32 bits, not 1.5`, `{"spec":{}}`},
		{`{"spec":{"terminationGracePeriodSeconds":"30s","priority":"-1","hostPID":"rue"}}`,
			`spec.hostPID: must be a boolean, not the string "rue" | spec.priority: must be an integer, not the string "-1"; leave the quotes out | ` +
				`spec.terminationGracePeriodSeconds: must be an integer, not the string "30s"`, `{"spec":{}}`},
		{`{"metadata":{"labels":{"a":true,"b":null}}}`, `metadata.labels[a]: must be a string, not the boolean true; put it in quotes`, `{"metadata":{"labels":{"b":null}}}`},
		{`{"metadata":{"creationTimestamp":"today"}}`, `metadata.creationTimestamp: Invalid value: "today": must be a time, such as 2026-01-31T15:04:05Z`, `{"metadata":{}}`},
		{`{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"web"}},"resources":{"limits":{"cpu":1,"memory":"1Mi"}}}]}}`, "",
			`{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"web"}},"resources":{"limits":{"cpu":1,"memory":"1Mi"}}}]}}`},
		{`{"spec":[]}`, `spec: must be an object, not a list`, `{}`},
		{`{"spec":{"nodeSelector":"x"}}`, `spec.nodeSelector: must be an object, not the string "x"`, `{"spec":{}}`},
	}
	for _, c := range cases {
		docs, errs := Parse([]byte(c.in))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		var words []string
		for _, e := range Check(docs[0].Value, reflect.TypeFor[v1.Pod](), "", likely) {
			words = append(words, e.Error())
		}
		if got := strings.Join(words, " | "); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s\ngot  %s\nwant %s", c.in, got, c.want)
		}
		var left, want any
		if json.Unmarshal(Canonical(docs[0].Value), &left) != nil || json.Unmarshal([]byte(c.left), &want) != nil || !reflect.DeepEqual(left, want) {
			t.Errorf("%s: left %s, want %s", c.in, Canonical(docs[0].Value), c.left)
		}
	}
}
