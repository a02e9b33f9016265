package e2e

import (
	"encoding/json"
	"slices"
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

// TestTimelineOfAPull: fetching an image and unpacking it are told apart, and what waits says for whom.
func TestTimelineOfAPull(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	image, _ := bigImage(t, 30<<20)
	h.push("big", image)
	n.write("job.yaml", manifest("job", "Never", "sleep 2"))
	web := strings.Replace(manifest("web", "Always", forever), box, h.address+"/team/big:1", 1)
	n.write("web.yaml", strings.Replace(web, "metadata:\n", "metadata:\n  annotations: {podrun.io/after: job}\n", 1))
	n.serve()
	n.ready("web-n")
	var shown struct {
		Items []struct {
			Kind, Detail string
			Critical     bool
		}
	}
	must(t, json.Unmarshal([]byte(n.ok("timeline", "web", "-o", "json")), &shown))
	var got []string
	for _, s := range shown.Items {
		if s.Critical {
			got = append(got, s.Kind+" "+s.Detail)
		}
	}
	want := []string{
		"waiting WaitingForPods: starts after default/job-n", "pull " + h.address + "/team/big:1",
		"unpack " + h.address + "/team/big:1", "start ",
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("not on the critical path: %q\n%q", w, got)
		}
	}
}
