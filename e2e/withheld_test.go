package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/test/testimage"
)

// forged is a pod with a Secret in a variable, and with a variable by which it means to lead podrun's stand-in for runc to
// a file of the attacker's choice.
const forged = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s, uid: forged-%[1]s}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, emptyDir: {}}]
  initContainers: [%[4]s]
  containers:
  - name: c
    image: %[2]s
    command: [sh, -c, 'exec sleep 1d']
    env:
    - {name: OTHER, value: "1"}%[3]s
    - {name: WORD, valueFrom: {secretKeyRef: {name: login, key: password}}}
`

// preparing is an init container of forged with the pod's volume.
const preparing = `{name: %s, image: podrun.example/box:1, command: [sh, -c, %q], volumeMounts: [{name: v, mountPath: /v}]%s}`

// evilProcess is a file as the stand-in takes it.
const evilProcess = `{"args":["sleep","1d"],"env":["PATH=/bin"]}`

// forge makes a pod of forged; where is what the variable of its manifest says, "" for none. It runs prepare first, and
// beside while the container starts.
func forge(name, image, where, prepare, beside string) string {
	variable, first := "", ""
	if where != "" {
		variable = fmt.Sprintf("\n    - {name: PODRUN_WITHHELD, value: %q}", where)
	}
	if prepare != "" {
		first = fmt.Sprintf(preparing, "i", prepare, "")
	}
	if beside != "" {
		first += ", " + fmt.Sprintf(preparing, "w", beside+"; exec sleep 1d", ", restartPolicy: Always")
	}
	return fmt.Sprintf(forged, name, image, variable, first)
}

// TestForgedVariables: nothing that a manifest or an image says leads podrun's stand-in for runc, which is root on the
// machine, to another file than the container's own.
func TestForgedVariables(t *testing.T) {
	n := newNode(t)
	const word, others = "oWn-w0rd-16180", "tHe-others-w0rd-14142"
	for _, name := range []string{"byimage", "bymanifest"} {
		must(t, os.WriteFile(n.path(name), []byte("untouched"), 0o600))
	}
	evil, err := testimage.Busybox(n.dir, "podrun.example/evil:1", testimage.Env("PODRUN_WITHHELD=rootfs/evil"),
		testimage.File("/evil", 0o644, []byte(evilProcess)), testimage.Link("/evil.bundle/config.json", n.path("byimage")))
	must(t, err)
	n.ok("images", "load", evil)
	volume := func(name string) string {
		return n.path("root", "pods", "forged-"+name, "volumes", "kubernetes.io~empty-dir", "v", "f")
	}
	const prepare = "echo '" + evilProcess + "' >/v/f; mkdir /v/f.bundle; "
	hook := fmt.Sprintf(`sed 's|"linux":|"hooks":{"createRuntime":[{"path":"/bin/touch","args":["touch","%s"]}]},"linux":|' `+
		`</v/f.bundle/config.json >/v/spec; cat /v/spec >/v/f.bundle/config.json`, n.path("hooked"))
	values := map[string]string{"a": "rootfs/evil", "b": volume("b"), "h": volume("h")}
	n.write("login.yaml", fmt.Sprintf(password, word))
	n.write("a.yaml", forge("a", "podrun.example/evil:1", "", "", ""))
	n.serve()
	n.ready("a-n") // first: containerd starts its shim in the directory that has the container's root filesystem
	n.write("b.yaml", forge("b", box, values["b"], prepare+"ln -s "+n.path("bymanifest")+" /v/f.bundle/config.json", ""))
	n.write("h.yaml", forge("h", box, values["h"], prepare+"mkfifo /v/f.bundle/config.json", hook))
	other := strings.Replace(fmt.Sprintf(password, others), "{name: login}", "{name: login, namespace: other}", 1)
	n.write("o.yaml", other+"---\n"+strings.Replace(forge("o", box, "", "", ""), "{name: o,", "{name: o, namespace: other,", 1))
	n.ready("o-n")
	values["r"] = n.secretOf("forged-o", others)
	n.write("r.yaml", forge("r", box, values["r"], "", ""))
	for name := range values {
		n.ready(name + "-n")
	}
	for _, name := range []string{"byimage", "bymanifest"} {
		if got, err := os.ReadFile(n.path(name)); err != nil || string(got) != "untouched" {
			t.Errorf("a file of the machine's was overwritten, %s: %.100s, %v", name, got, err)
		}
	}
	if _, err := os.Lstat(n.path("hooked")); err == nil {
		t.Error("a hook of a container's ran on the machine")
	}
	for name, value := range values {
		n.says(name, "echo $WORD $PODRUN_WITHHELD", word+" "+value)
		n.says(name, `tr "\\0" "\\n" </proc/1/environ | grep -E "^(WORD|PODRUN_WITHHELD)=" | sort`, "PODRUN_WITHHELD="+value+"\nWORD="+word)
	}
}

// secretOf is the file in memory in which a revision's Secret waits for its process.
func (n *node) secretOf(uid, word string) (path string) {
	n.t.Helper()
	must(n.t, filepath.WalkDir(n.path("root", "pods", uid, "withheld"), func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "config.json" {
			return err
		}
		text, err := os.ReadFile(at)
		if strings.Contains(string(text), word) {
			path = at
		}
		return err
	}))
	if path == "" {
		n.t.Fatal("the Secret waits nowhere")
	}
	return path
}
