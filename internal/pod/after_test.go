package pod

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAfter(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{}
	p.Namespace, p.Name, p.Spec.NodeName = "own", "p-n", "n"
	if got := After(p); got != nil {
		t.Errorf("without the annotation: %v", got)
	}
	p.Annotations = map[string]string{AnnotationAfter: "a, other/b"}
	if got := fmt.Sprint(After(p)); got != "[own/a-n other/b-n]" {
		t.Errorf("got %s", got)
	}
	p.Name = "p"
	if got := fmt.Sprint(After(p)); got != "[own/a other/b]" {
		t.Errorf("of a pod without the node's name: %s", got)
	}
}
