package printers

import (
	"bytes"
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

// TestNumbers: whole numbers are those of kubectl, in paths, whose filters compare them, and as text.
func TestNumbers(t *testing.T) {
	t.Parallel()
	p := v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", RestartCount: 1000000}}}}
	for output, want := range map[string]string{
		"jsonpath={.status.containerStatuses[?(@.restartCount>0)].name}":   "c",
		"jsonpath={.status.containerStatuses[?(@.restartCount==0)].name}":  "",
		"jsonpath={.status.containerStatuses[0].restartCount}":             "1000000",
		"custom-columns=N:.status.containerStatuses[0].restartCount":       "N\n1000000\n",
		"go-template={{(index .status.containerStatuses 0).restartCount}}": "1e+06",
	} {
		f, err := ParseFormat(output)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := (Items{Format: f, Single: true}).Print(&out, []Item{{Object: p}}); err != nil || out.String() != want {
			t.Errorf("-o %s: %q, %v; want %q", output, out.String(), err, want)
		}
	}
}
