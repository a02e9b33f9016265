package e2e

import (
	"strings"
	"testing"
)

// TestTimeline: podrun timeline shows what the start of a pod spent its time on while serve runs.
func TestTimeline(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("web", "Always", forever))
	n.serve()
	n.awaitPod("web-n", "to be ready", isReady)
	r := n.run("timeline", "web")
	for _, want := range []string{"default/web-n sandbox\n", "default/web-n network\n", "default/web-n c start\n", "#"} {
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("without %q: %v", want, r)
		}
	}
	if r := n.run("timeline", "-o", "svg"); r.code != 0 || !strings.HasPrefix(r.stdout, "<svg ") {
		t.Error(r)
	}
	if r := n.run("timeline", "nobody"); r.code != 1 || !strings.Contains(r.stderr, "nobody") {
		t.Error(r)
	}
}
