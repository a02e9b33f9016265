package cmd

import (
	"bytes"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a pod says about itself does nothing to the terminal that it is shown on.
func TestTerminalEscapes(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b[2Jb\rc\u202ed\x9be\nf\tg\x00"
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: map[string]string{"k": evil}}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "i", Args: []string{evil}}}
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", Message: evil}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: ended}}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Reason: "x", Message: evil}}
	var out bytes.Buffer
	description{out: &out}.pod(p)
	t2 := table{out: &out}
	if err := t2.print([]string{evil, evil}); err != nil {
		t.Fatal(err)
	}
	if bad := strings.IndexAny(out.String(), "\x1b\r\u202e\x00"); bad >= 0 || strings.Contains(out.String(), "\x9b") {
		t.Errorf("at %d of\n%q", bad, out.String())
	}
}
