package decode

import "testing"

func TestSimilarQuantities(t *testing.T) {
	t.Parallel()
	const examples = ", such as 500m, 2, 64Mi or 1Gi"
	for text, want := range map[string]string{
		`"64MB"`:    "; did you mean 64Mi (1024), or 64M (1000)?",
		`"1.5 gb"`:  "; did you mean 1.5Gi (1024), or 1.5G (1000)?",
		`"64 MiB"`:  "; did you mean 64Mi?",
		`"8kb"`:     "; did you mean 8Ki (1024), or 8k (1000)?",
		`"B"`:       examples,
		`"MB"`:      examples,
		`"one"`:     examples,
		`"1 core"`:  examples,
		`""`:        examples,
		`true`:      examples,
		`"NaNMB"`:   examples,
		`"64MB64B"`: examples,
	} {
		if got := similarQuantity([]byte(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestTemplates: a template that was not rendered is an error of its line, without Go's types.
func TestTemplates(t *testing.T) {
	t.Parallel()
	const message = "a key must be a string, not a mapping or a list; render a template before it is used, or put {{ }} in quotes"
	for text, line := range map[string]int{
		"a: b\nimage: {{ .Values.image }}\n":                 2,
		"{{ a }}: b\n":                                       1,
		"a: b\nlist:\n- [{x: {[a, b]: c}}]\n":                3,
		"a: 1\n---\na: 2\n---\nb: b\nspec: {c: {{image}}}\n": 6,
	} {
		_, errs := Parse([]byte(text))
		if len(errs) != 1 || errs[0].Line != line || errs[0].Message != message {
			t.Errorf("%q: %+v, want line %d", text, errs, line)
		}
	}
}
