package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// events are what happened to a pod, as REASON:COUNT.
func (n *node) events(pod string) map[string]int32 {
	n.t.Helper()
	var list v1.EventList
	must(n.t, json.Unmarshal([]byte(n.ok("events", pod, "-o", "json")), &list))
	out := map[string]int32{}
	for _, e := range list.Items {
		out[e.Reason] += e.Count
	}
	return out
}

const crasher = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - name: app
    image: ` + box + `
    imagePullPolicy: Never
    command: [sh, -c, "echo about to fail; exit 7"]
`

// Why a pod does not run is told by get in a line, by describe with its log and what happened, and still so
// when podrun has been killed.
func TestWhyAPodDoesNotRun(t *testing.T) {
	n := newNode(t)
	n.write("crash.yaml", fmt.Sprintf(crasher, "crash"))
	n.write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n")
	n.serve()
	n.await("the events of a crash loop", func() error {
		got := n.events("crash")
		if got["Started"] < 2 || got["Created"] != got["Started"] || got["BackOff"] < 1 || got["Pulled"] < 2 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	n.await("the reason", func() error { // a status comes when the instance has been reaped
		if got := n.ok("get", "pods"); !strings.Contains(got, "app: exit code 7; next attempt in ") {
			return fmt.Errorf("get:\n%s", got)
		}
		return nil
	})
	if bad := n.ok("events"); !strings.Contains(bad, "FailedValidation   node/n ") || !strings.Contains(bad, "bad.yaml:4: spec.containers: Required value") {
		t.Errorf("events of a bad manifest:\n%s", bad)
	}
	for range 2 {
		story := n.ok("describe", "pod", "crash")
		for _, want := range []string{"/crash.yaml\n", "Exit Code:    7\n", "Last Log of app:\n  about to fail\n", "Next Attempt: ", "  BackOff   "} {
			if !strings.Contains(story, want) {
				t.Errorf("describe has no %q:\n%s", want, story)
			}
		}
		if n.serving == nil {
			break
		}
		if r := n.run("get", "pods"); strings.Contains(r.stderr, "not running") {
			t.Errorf("serve runs: %v", r)
		}
		n.serving.Process.Kill()
		<-n.ended
		n.serving = nil
	}
	if r := n.run("get", "pods"); !strings.Contains(r.stderr, "warning: podrun serve is not running; this is how pods were ") {
		t.Errorf("serve was killed: %v", r)
	}
}
