package minimal

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestYAMLOfAnyText: each character that a container or a manifest can have in a text is printed so that it is read back.
func TestYAMLOfAnyText(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= 0x10ffff; r++ {
		if r >= 0xd800 && r < 0xe000 {
			continue // halves of UTF-16's pairs
		}
		if r > 0x3000 && r < 0xfe00 || r > 0x10100 && r < 0x10ff00 {
			continue // more of the same
		}
		want := "a" + string(r) + "b " + string(r)
		text, err := YAML(map[string]any{"message": want})
		if err != nil {
			t.Fatalf("U+%04X: %v", r, err)
		}
		var back map[string]any
		if err := yaml.Unmarshal(text, &back); err != nil || back["message"] != want {
			t.Fatalf("U+%04X: %q is read as %q: %v", r, text, back["message"], err)
		}
	}
}

// TestManifestOfAnyText: a pod with control characters has a manifest, which makes the same pod.
func TestManifestOfAnyText(t *testing.T) {
	t.Parallel()
	const want = "\u009b31m\u007f\u0085x"
	p := load(t, []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": {"a": "\u009b31m\u007f\u0085x"}},
		"spec": {"containers": [{"name": "c", "image": "c:1"}]}}`), true)[0]
	text, err := Manifest(p, true)
	if err != nil || strings.Contains(string(text), "\u009b") {
		t.Fatalf("%q, %v", text, err)
	}
	if got := load(t, text, true)[0].Annotations["a"]; got != want {
		t.Errorf("%q is read as %q", text, got)
	}
}
