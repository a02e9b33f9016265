package printers

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestFormatsOfAnyMessage: a container's message does not keep pods from being printed.
func TestFormatsOfAnyMessage(t *testing.T) {
	t.Parallel()
	const want = "\u009b31m \u007f \u0085 \x1b[2J \u202e \ufeff"
	list := v1.PodList{Items: []v1.Pod{{Status: v1.PodStatus{Message: want}}}}
	for _, output := range []string{"yaml", "json"} {
		f, err := ParseFormat(output)
		if err != nil {
			t.Fatal(err)
		}
		text, err := f.Marshal(list)
		if err != nil {
			t.Fatalf("-o %s: %v", output, err)
		}
		var back v1.PodList
		if err := yaml.Unmarshal(text, &back); output == "yaml" && (err != nil || back.Items[0].Status.Message != want) {
			t.Errorf("-o %s: %v: %q", output, err, text)
		}
	}
}
