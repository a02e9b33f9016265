package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// configure writes what the round's pod with volumes refers to.
func (r *round) configure(value string) {
	r.write("settings.yaml", fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {k: %[1]s}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {word: %[1]s}
`, value))
}

// webWithVolumes is the pod with volumes that are filled, in memory, and in part. It looks at them before it
// says that it starts.
func (r *round) webWithVolumes(service string) string {
	const look = `case "$(cat /c/k /k /s/word /p/k /p/word)$WORD" in v*v*v*v*v*v*) ;; *) echo wrong content >>/t/web-n.c;; esac; ` +
		`[ "$(stat -fc %T /s /p /m | sort -u)" = tmpfs ] || echo wrong file system >>/t/web-n.c; ` +
		`touch /m/x /d/x || echo wrong mode >>/t/web-n.c; `
	volumes := "volumes: [{name: t, hostPath: {path: " + r.path("trace") + ", type: Directory}}, {name: c, configMap: {name: config}}, " +
		"{name: s, secret: {secretName: login}}, {name: p, projected: {sources: [{configMap: {name: config}}, {secret: {name: login}}]}}, " +
		"{name: m, emptyDir: {medium: Memory}}, {name: d, emptyDir: {}}]"
	return inContainer(manifest("web", "Always", look+service, volumes),
		"volumeMounts: [{name: t, mountPath: /t}, {name: c, mountPath: /c}, {name: s, mountPath: /s}, {name: p, mountPath: /p}, "+
			"{name: m, mountPath: /m}, {name: d, mountPath: /d, subPath: a/b}, {name: c, mountPath: /k, subPath: k}]",
		"env: [{name: WORD, valueFrom: {secretKeyRef: {name: login, key: word}}}]")
}

// judgeVolumes looks at what the pod with volumes found, and waits until it has what was written last.
func (r *round) judgeVolumes() {
	if text, _ := os.ReadFile(r.path("trace", "web-n.c")); strings.Contains(string(text), "wrong") {
		r.failf("the pod with volumes found something wrong")
	}
	left := errors.New("not looked")
	for end := time.Now().Add(patience); left != nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = r.shownInside("v1")
	}
	if left != nil {
		r.failf("the pod with volumes does not show the edit: %v", left)
	}
}

// shownInside complains if the pod's processes see anything else in the volumes that follow their sources.
func (r *round) shownInside(want string) error {
	uid := string(r.pods()["web-n"].UID)
	all := []error{errors.New("it has no process")}
	for _, i := range r.instances() {
		if i.uid != uid {
			continue
		}
		all[0] = nil
		for _, file := range []string{"c/k", "s/word", "p/k", "p/word"} {
			got, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/%s", i.pid, file))
			if err == nil && string(got) != want {
				err = fmt.Errorf("/%s: %q", file, got)
			}
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
