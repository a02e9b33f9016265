package printers

import (
	"strings"
	"testing"
)

func TestSort(t *testing.T) {
	t.Parallel()
	type object struct {
		Name   string            `json:"name"`
		Number int               `json:"number,omitempty"`
		Labels map[string]string `json:"labels,omitempty"`
	}
	all := func() []object {
		return []object{
			{Name: "c", Number: 10, Labels: map[string]string{"memory": "1Gi"}},
			{Name: "a", Labels: map[string]string{"memory": "200Mi"}},
			{Name: "b", Number: 9, Labels: map[string]string{"memory": "64Mi"}},
		}
	}
	for by, want := range map[string]string{
		"": "cab", ".name": "abc", "{.name}": "abc", "name": "abc", ".number": "abc", ".labels.memory": "bac",
	} {
		o, err := ParseOrder(by)
		if err != nil {
			t.Fatal(err)
		}
		sorted := all()
		if err := Sort(o, sorted); err != nil {
			t.Errorf("%q: %v", by, err)
		}
		if got := sorted[0].Name + sorted[1].Name + sorted[2].Name; got != want {
			t.Errorf("%q: got %s, want %s", by, got, want)
		}
	}
	o, err := ParseOrder(".nothing")
	if err != nil {
		t.Fatal(err)
	}
	if err := Sort(o, all()); err == nil || !strings.Contains(err.Error(), "none of the objects") {
		t.Errorf("an unknown field: %v", err)
	}
	if err := Sort(o, []object{}); err != nil {
		t.Errorf("no objects: %v", err)
	}
	if _, err := ParseOrder("{.a["); err == nil {
		t.Error("no error for half a path")
	}
}
