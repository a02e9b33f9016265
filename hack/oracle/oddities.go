package main

import (
	"fmt"
	"strings"
)

// spellings returns manifests in which a field of each kind has a YAML scalar, in many spellings.
func spellings() []manifest {
	scalars := []string{
		"y", "Y", "n", "N", "yes", "Yes", "YES", "no", "NO", "on", "On", "off", "OFF", "true", "True", "TRUE", "tRue",
		"false",
		"~", "null", "Null", "NULL", "nULL", "", "''", `""`, "'a'", `"a\tb"`, `"\x41"`, `"\u0041"`, `'it''s'`,
		"0", "-0", "+1", "1", "-1", "010", "0o10", "0x10", "0b11", "1_000", "1e3", "1E3", "1e+3", "80.0", "1.", ".5",
		"1.5", "0.0", "1e400", "1e-3",
		".inf", "-.inf", ".nan", ".NaN", "NaN", "Infinity", "0x", "09", "1__0", "_1", "0o8", "0xg",
		"9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
		"123456789012345678901234567890",
		"22:22", "190:20:30", "2026-01-02", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05", "1.2.3", "1,000", "0644",
		"0o644",
		"!!str 1", "!!str true", "!!int \"1\"", "!!int 1", "!!float 1", "!!float \"1.0\"", "!!bool \"true\"",
		"!!null ''", "!!binary YQ==", "!x a", "!!timestamp 2026-01-02", "! a", "!!set {a}", "!!map {}", "!!seq []",
		"|\n  a\n  b", ">\n  a\n  b", "|-\n  a", ">+\n  a\n", "a b", "a  b", "a #c", "a#c", "a: b", "'a: b'", "[a, b]",
		"[]", "{a: b}", "{}", "&x a", "*x", "&x\n  a", "@a", "`a", "%a", "\"a", "'a", "- a", "-", "?", ": a", "=", "<<",
		"!", "é", "\"\\ud83d\\ude00\"", "\"\\ud800\"", "a\tb", "\ta", "a\\nb", "\"a\\\n  b\"",
	}
	places := []struct{ name, text string }{
		{"label", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\n labels:\n  k: %s\nspec:\n" +
			" containers:\n - {name: c, image: i}\n"},
		{"env", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\nspec:\n containers:\n - name: c\n" +
			"   image: i\n   env:\n   - name: A\n     value: %s\n"},
		{"arg", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\nspec:\n containers:\n - name: c\n" +
			"   image: i\n   args:\n   - %s\n"},
		{"integer", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\nspec:\n" +
			" terminationGracePeriodSeconds: %s\n containers:\n - {name: c, image: i}\n"},
		{"port", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\nspec:\n containers:\n - name: c\n" +
			"   image: i\n   ports:\n   - containerPort: %s\n"},
		{"boolean", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\nspec:\n hostNetwork: %s\n" +
			" containers:\n - {name: c, image: i}\n"},
		{"quantity", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\nspec:\n containers:\n - name: c\n" +
			"   image: i\n   resources:\n    limits:\n     memory: %s\n"},
		{"enum", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\nspec:\n restartPolicy: %s\n" +
			" containers:\n - {name: c, image: i}\n"},
		{"name", "apiVersion: v1\nkind: Pod\nmetadata:\n name: %s\nspec:\n containers:\n - {name: c, image: i}\n"},
		{"list", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\nspec:\n tolerations: %s\n" +
			" containers:\n - {name: c, image: i}\n"},
		{"key", "apiVersion: v1\nkind: Pod\nmetadata:\n name: a\n labels:\n  %s: v\nspec:\n" +
			" containers:\n - {name: c, image: i}\n"},
	}
	var all []manifest
	for _, p := range places {
		for _, s := range scalars {
			// Further lines of a scalar are indented more than the field in any of the texts.
			text := strings.ReplaceAll(s, "\n", "\n        ")
			all = append(all,
				manifest{Name: fmt.Sprintf("spelling %s: %q", p.name, s), Data: fmt.Appendf(nil, p.text, text)})
		}
	}
	return all
}

const yamlPod = `apiVersion: v1
kind: Pod
metadata:
  name: a
spec:
  containers:
  - name: c
    image: i
`

// oddities returns manifests whose text, rather than a value in it, is unusual.
func oddities() []manifest {
	second := strings.Replace(yamlPod, "name: a", "name: b", 1)
	list := "apiVersion: v1\nkind: List\nitems:\n"
	item := "- apiVersion: v1\n  kind: Pod\n  metadata: {name: %s}\n  spec: {containers: [{name: c, image: i}]}\n"
	texts := []struct{ name, text string }{
		{"plain", yamlPod},
		{"nothing", ""},
		{"white space", " \n\n"},
		{"a comment", "# nothing\n"},
		{"a marker", "---\n"},
		{"null", "null\n"},
		{"a scalar", "a\n"},
		{"a number", "1\n"},
		{"a list", "- a\n"},
		{"an empty object", "{}\n"},
		{"byte order mark", "\ufeff" + yamlPod},
		{"byte order mark and marker", "\ufeff---\n" + yamlPod},
		{"byte order mark and JSON", "\ufeff" + minimal},
		{"UTF-16", "\xff\xfea\x00:\x00 \x001\x00"},
		{"not UTF-8", strings.Replace(yamlPod, "image: i", "image: \xff", 1)},
		{"a NUL", strings.Replace(yamlPod, "image: i", "image: i\x00", 1)},
		{"a control character", strings.Replace(yamlPod, "image: i", "image: i\x01", 1)},
		{"a form feed", yamlPod + "\f\n"},
		{"CRLF", strings.ReplaceAll(yamlPod, "\n", "\r\n")},
		{"CR", strings.ReplaceAll(yamlPod, "\n", "\r")},
		{"next line characters", strings.ReplaceAll(yamlPod, "\n", "\u0085")},
		{"no last line end", strings.TrimSuffix(yamlPod, "\n")},
		{"trailing spaces", strings.ReplaceAll(yamlPod, "\n", "  \n")},
		{"tab indent", strings.Replace(yamlPod, "  name: a", "\tname: a", 1)},
		{"tab after key", strings.Replace(yamlPod, "name: a", "name:\ta", 1)},
		{"two documents", yamlPod + "---\n" + second},
		{"two documents, empty between", yamlPod + "---\n---\n" + second},
		{"two documents, comment between", yamlPod + "---\n# x\n---\n" + second},
		{"two documents, marker with comment", yamlPod + "--- # x\n" + second},
		{"two documents, marker with spaces", yamlPod + "---  \n" + second},
		{"two documents, content on the marker", yamlPod + "--- {apiVersion: v1, kind: Pod}\n"},
		{"two documents, end marker", yamlPod + "...\n---\n" + second},
		{"two documents, only end marker", yamlPod + "...\n" + second},
		{"end marker last", yamlPod + "...\n"},
		{"marker last", yamlPod + "---\n"},
		{"markers first", "---\n---\n" + yamlPod},
		{"marker indented", yamlPod + " ---\n"},
		{"four dashes", yamlPod + "----\n"},
		{"marker CRLF", strings.ReplaceAll(yamlPod+"---\n"+second, "\n", "\r\n")},
		{"marker inside a block",
			strings.Replace(yamlPod, "image: i\n", "image: i\n    args:\n    - |\n      a\n---\n      b\n", 1)},
		{"directive", "%YAML 1.1\n---\n" + yamlPod},
		{"directive 1.2", "%YAML 1.2\n---\n" + yamlPod},
		{"directive of a tag", "%TAG ! !x\n---\n" + yamlPod},
		{"one bad, one good", yamlPod + "---\nkind: Pod\n"},
		{"YAML then JSON", yamlPod + "---\n" + minimal},
		{"JSON then YAML", minimal + "\n---\n" + second},
		{"JSON then JSON", minimal + "\n" + strings.Replace(minimal, `"name":"a"`, `"name":"b"`, 1)},
		{"JSON then JSON on one line", minimal + strings.Replace(minimal, `"name":"a"`, `"name":"b"`, 1)},
		{"JSON then a marker then JSON", minimal + "\n---\n" + strings.Replace(minimal, `"name":"a"`, `"name":"b"`, 1)},
		{"JSON then rubbish", minimal + "\nx"},
		{"flow style then rubbish",
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\nx\n"},
		{"flow style then more",
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\nx: y\n"},
		{"flow style then a comment",
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\n# x\n"},
		{"flow style on the marker, then rubbish",
			"--- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\nx\n"},
		{"JSON with a trailing comma", strings.Replace(minimal, `"image":"i"}`, `"image":"i",}`, 1)},
		{"JSON with a comment", "# c\n" + minimal},
		{"JSON with comments inside", strings.Replace(minimal, `"kind"`, "# c\n\"kind\"", 1)},
		{"JSON in single quotes", strings.ReplaceAll(minimal, `"`, "'")},
		{"JSON truncated", minimal[:len(minimal)-3]},
		{"JSON indented by tabs", strings.ReplaceAll(minimal, `"spec"`, "\n\t\"spec\"")},
		{"JSON with white space first", " \n\t" + minimal},
		{"JSON array", "[" + minimal + "]"},
		{"JSON key twice", strings.Replace(minimal, `"name":"c"`, `"name":"c","name":"c"`, 1)},
		{"JSON key twice, deep and top", strings.Replace(minimal, `"kind":"Pod"`, `"kind":"Pod","kind":"Pod"`, 1)},
		{"JSON key in two cases", strings.Replace(minimal, `"name":"c"`, `"name":"c","Name":"c"`, 1)},
		{"JSON label twice", strings.Replace(minimal, `"name":"a"`, `"name":"a","labels":{"x":"1","x":"2"}`, 1)},
		{"JSON escaped key", strings.Replace(minimal, `"image"`, `"im\u0061ge"`, 1)},
		{"JSON lone surrogate", strings.Replace(minimal, `"image":"i"`, `"image":"i","args":["\ud800"]`, 1)},
		{"JSON control character", strings.Replace(minimal, `"image":"i"`, "\"image\":\"i\",\"args\":[\"a\x01b\"]", 1)},
		{"JSON delete character", strings.Replace(minimal, `"image":"i"`, "\"image\":\"i\",\"args\":[\"a\x7fb\"]", 1)},
		{"JSON large number", strings.Replace(minimal, `"spec":{`, `"spec":{"terminationGracePeriodSeconds":1e2,`, 1)},
		{"JSON NaN", strings.Replace(minimal, `"spec":{`, `"spec":{"terminationGracePeriodSeconds":NaN,`, 1)},
		{"key twice", strings.Replace(yamlPod, "    image: i\n", "    image: i\n    image: j\n", 1)},
		{"key twice at the top", yamlPod + "kind: Pod\n"},
		{"key twice in metadata", strings.Replace(yamlPod, "  name: a\n", "  name: a\n  name: a\n", 1)},
		{"key twice, quoted", strings.Replace(yamlPod, "    image: i\n", "    image: i\n    \"image\": j\n", 1)},
		{"label twice", strings.Replace(yamlPod, "  name: a\n", "  name: a\n  labels: {x: '1', x: '2'}\n", 1)},
		{"label twice, as a number and a string",
			strings.Replace(yamlPod, "  name: a\n", "  name: a\n  labels: {1: a, '1': b}\n", 1)},
		{"label twice, as two numbers",
			strings.Replace(yamlPod, "  name: a\n", "  name: a\n  labels: {1: a, 0x1: b}\n", 1)},
		{"label keys that are no strings",
			strings.Replace(yamlPod, "  name: a\n", "  name: a\n  labels: {1: a, true: b, 1.5: c}\n", 1)},
		{"label key null", strings.Replace(yamlPod, "  name: a\n", "  name: a\n  labels: {~: a}\n", 1)},
		{"label key a list", strings.Replace(yamlPod, "  name: a\n", "  name: a\n  labels: {[a]: b}\n", 1)},
		{"label key large number",
			strings.Replace(yamlPod, "  name: a\n", "  name: a\n  labels: {10000000000000000000: b}\n", 1)},
		{"explicit key", strings.Replace(yamlPod, "  name: a\n", "  ? name\n  : a\n", 1)},
		{"anchor and alias", strings.Replace(yamlPod, "name: a\n", "name: &n a\n  labels: {x: *n}\n", 1)},
		{"anchor of an object", "x: &c {name: c, image: i}\n" + yamlPod},
		{"anchored container", strings.Replace(yamlPod, "- name: c\n    image: i\n",
			"- &c\n    name: c\n    image: i\n  - <<: *c\n    args: [x]\n", 1)},
		{"merge, disjoint", strings.Replace(yamlPod, "- name: c\n    image: i\n",
			"- &c\n    name: c\n    image: i\n  - {<<: {image: j}, name: d}\n", 1)},
		{"merge, override", strings.Replace(yamlPod, "- name: c\n    image: i\n",
			"- &c\n    name: c\n    image: i\n  - <<: *c\n    name: d\n", 1)},
		{"merge, override before", strings.Replace(yamlPod, "- name: c\n    image: i\n",
			"- &c\n    name: c\n    image: i\n  - name: d\n    <<: *c\n", 1)},
		{"merge, list", strings.Replace(yamlPod, "- name: c\n    image: i\n", "- <<: [{name: c}, {image: i}]\n", 1)},
		{"merge, list with the same key",
			strings.Replace(yamlPod, "- name: c\n    image: i\n", "- <<: [{name: c, image: i}, {image: j}]\n", 1)},
		{"merge, twice",
			strings.Replace(yamlPod, "- name: c\n    image: i\n", "- <<: {name: c}\n    <<: {image: i}\n", 1)},
		{"merge, of a scalar",
			strings.Replace(yamlPod, "- name: c\n    image: i\n", "- <<: a\n    name: c\n    image: i\n", 1)},
		{"merge, quoted",
			strings.Replace(yamlPod, "- name: c\n    image: i\n", "- '<<': {name: c}\n    name: c\n    image: i\n", 1)},
		{"alias of nothing", strings.Replace(yamlPod, "image: i", "image: *x", 1)},
		{"alias of itself", strings.Replace(yamlPod, "  containers:", "  x: &x [*x]\n  containers:", 1)},
		{"alias across documents", strings.Replace(yamlPod, "name: a", "name: &n a", 1) +
			"---\n" + strings.Replace(second, "image: i", "image: *n", 1)},
		{"anchor twice", strings.Replace(yamlPod, "name: a\n", "name: &n a\n  labels: {x: &n b, y: *n}\n", 1)},
		{"flow style", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\n"},
		{"flow style over lines",
			"{apiVersion: v1,\n kind: Pod,\n metadata: {name: a},\n spec: {containers: [{name: c,\n image: i}]}\n}\n"},
		{"flow style, no space",
			"{apiVersion: v1, kind: Pod, metadata: {name:a}, spec: {containers: [{name: c, image: i}]}}\n"},
		{"flow style, trailing comma",
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i},]},}\n"},
		{"wrong indent", strings.Replace(yamlPod, "    image: i", "   image: i", 1)},
		{"deeper indent", strings.Replace(yamlPod, "    image: i", "      image: i", 1)},
		{"no space after colon", strings.Replace(yamlPod, "image: i", "image:i", 1)},
		{"no space after dash", strings.Replace(yamlPod, "- name: c", "-name: c", 1)},
		{"unclosed quote", strings.Replace(yamlPod, "image: i", "image: \"i", 1)},
		{"colon in a value", strings.Replace(yamlPod, "image: i", "image: a: b", 1)},
		{"template braces", strings.Replace(yamlPod, "image: i", "image: {{ .Image }}", 1)},
		{"many levels", strings.Replace(yamlPod, "image: i",
			"image: i\n    args: "+strings.Repeat("[", 50)+strings.Repeat("]", 50), 1)},
		{"very many levels", strings.Replace(yamlPod, "image: i",
			"image: i\n    args: "+strings.Repeat("[", 20000)+strings.Repeat("]", 20000), 1)},
		{"a long line",
			strings.Replace(yamlPod, "image: i", "image: i\n    args: ["+strings.Repeat("a", 1<<20)+"]", 1)},
		{"complex text", strings.Replace(yamlPod, "image: i",
			"image: i\n    args:\n    - |\n      # not a comment\n      a: b\n    - >-\n      folded\n      text", 1)},
		{"List", list + fmt.Sprintf(item, "a") + fmt.Sprintf(item, "b")},
		{"List of nothing", "apiVersion: v1\nkind: List\nitems: []\n"},
		{"List without items", "apiVersion: v1\nkind: List\n"},
		{"List, null items", "apiVersion: v1\nkind: List\nitems: null\n"},
		{"List, a null item", list + "- null\n"},
		{"List, a scalar item", list + "- a\n"},
		{"List, a typo in an item", list + strings.Replace(fmt.Sprintf(item, "a"), "image", "imgae", 1)},
		{"List, a bad item", list + fmt.Sprintf(item, "a") + fmt.Sprintf(item, "B")},
		{"List, an item without kind", list + "- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n"},
		{"List, an item of another kind", list + "- {apiVersion: v1, kind: Service, metadata: {name: a}}\n"},
		{"List, unknown field", list + fmt.Sprintf(item, "a") + "x: 1\n"},
		{"List in a List", list + "- {apiVersion: v1, kind: List, items: []}\n"},
		{"PodList", strings.Replace(list, "List", "PodList", 1) + fmt.Sprintf(item, "a")},
		{"PodList, items without kind", strings.Replace(list, "List", "PodList", 1) +
			"- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n"},
		{"PodList of nothing", "apiVersion: v1\nkind: PodList\nitems: []\n"},
		{"PodList, a bad item", strings.Replace(list, "List", "PodList", 1) + fmt.Sprintf(item, "B")},
		{"PodList, a typo in an item",
			strings.Replace(list, "List", "PodList", 1) + strings.Replace(fmt.Sprintf(item, "a"), "image", "imgae", 1)},
		{"PodList, metadata",
			strings.Replace(list, "List", "PodList\nmetadata: {resourceVersion: ''}", 1) + fmt.Sprintf(item, "a")},
		{"PodList, unknown metadata",
			strings.Replace(list, "List", "PodList\nmetadata: {x: 1}", 1) + fmt.Sprintf(item, "a")},
		{"PodList, an item of another kind",
			strings.Replace(list, "List", "PodList", 1) + "- {apiVersion: v1, kind: Service, metadata: {name: a}}\n"},
		{"PodList, a null item", strings.Replace(list, "List", "PodList", 1) + "- null\n"},
		{"Deployment", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"},
		{"ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\n"},
		{"Pod and Service", yamlPod + "---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n"},
		{"an unknown kind", "apiVersion: x/v1\nkind: X\n"},
		{"no kind", "apiVersion: v1\nmetadata: {name: a}\n"},
		{"no apiVersion", "kind: Pod\nmetadata: {name: a}\n"},
		{"names of the same pod", yamlPod + "---\n" + yamlPod},
	}
	var all []manifest
	for _, t := range texts {
		all = append(all, manifest{Name: "odd: " + t.name, Data: []byte(t.text)})
	}
	return all
}
