package e2e

import (
	"fmt"
	"strings"
)

// manifest is a pod of one container, c, that runs a script in the test image. Spec are further lines of the
// pod's spec, unindented.
func manifest(name, policy, script string, spec ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  restartPolicy: %s
  terminationGracePeriodSeconds: 1
%s  containers:
  - name: c
    image: %s
    command: [sh, -c, %s]
`, name, policy, indented(2, spec), box, asJSON(script))
}

// withGrace gives a manifest's pods so many seconds to end. Whatever has something to say at its end needs more than
// the one second that manifest gives: on a busy machine that is no time.
func withGrace(manifest string, seconds int) string {
	return strings.ReplaceAll(manifest, "terminationGracePeriodSeconds: 1\n", fmt.Sprintf("terminationGracePeriodSeconds: %d\n", seconds))
}

// inContainer adds lines to the last container of a manifest.
func inContainer(manifest string, lines ...string) string { return manifest + indented(4, lines) }

func indented(by int, lines []string) string {
	var out strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&out, "%s%s\n", strings.Repeat(" ", by), line)
	}
	return out.String()
}

// Scripts.
const (
	// forever does nothing but end at once when asked to.
	forever = `trap "exit 0" TERM; while :; do sleep 1000 & wait; done`
	// counting writes numbered lines.
	counting = `trap "exit 0" TERM; i=0; while :; do echo line $i; i=$((i+1)); sleep 0.01; done`
)
