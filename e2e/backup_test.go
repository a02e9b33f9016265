package e2e

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// documented returns the command of the document that begins with those words, with the lane's directories in place of
// the machine's.
func (l *lane) documented(begin string) string {
	l.t.Helper()
	text, err := os.ReadFile("../docs/housekeeping.md")
	must(l.t, err)
	_, rest, ok := strings.Cut(string(text), "\n    "+begin)
	command, _, ends := strings.Cut(rest, "\n\n")
	if !ok || !ends {
		l.t.Fatalf("the document has no command %s", begin)
	}
	return strings.NewReplacer("\\\n", " ", "-C / ", "-C "+l.dir+" ", "etc/pods", "manifests", "var/lib/podrun", "root",
		"backup.tar.gz", l.path("backup.tar.gz"), "etc/default/podrun", "", "etc/systemd/system/podrun.service.d", "").Replace(begin + command)
}

// TestBackup: a backup that is made while pods run is restored on a machine that has nothing. Volumes are as they were,
// and what ran begins again; what had completed for good does not.
func TestBackup(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"as documented": func(line string) string { return line },
		// Other programs for backups know no such option.
		"with what is mounted": func(line string) string {
			return strings.NewReplacer("--one-file-system", "", "--exclude='root/pods/*/volume-subpaths'", "").Replace(line)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := machine(t)
			must(t, os.MkdirAll(l.path("root", "images"), 0o700))
			must(t, os.Link(setup.image, l.path("root", "images", "box.tar")))
			l.write("claim.yaml", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce]}\n")
			l.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {key: opens}\n")
			l.write("keeps.yaml", inContainer(manifest("keeps", "Always",
				"echo ran >>/data/runs; echo ran >>/part/runs; cat /key/key >>/trace/keeps; echo :$(cat /data/runs /part/runs | wc -l) >>/trace/keeps; "+forever,
				"volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: scratch, emptyDir: {}}, "+
					"{name: key, secret: {secretName: key}}, {name: trace, hostPath: {path: "+l.path("trace")+", type: Directory}}]"),
				"volumeMounts: [{name: data, mountPath: /data}, {name: scratch, mountPath: /part, subPath: a/part}, "+
					"{name: key, mountPath: /key}, {name: trace, mountPath: /trace}]"))
			l.write("ever.yaml", strings.Replace(l.withTrace("ever", "OnFailure", "echo ran >>/t/ever"),
				"metadata:\n", "metadata:\n  annotations: {podrun.io/run-policy: once-ever}\n", 1))
			l.serve()
			before := l.ready("keeps-n")
			l.awaitTrace("keeps", "opens:2")
			l.awaitPod("ever-n", "to have succeeded", phase(v1.PodSucceeded, ""))
			runs := l.path("root", "claims", "default", "data", "runs")
			must(t, unix.Setxattr(runs, "trusted.test", []byte("x"), 0))

			must(t, l.inside(change(l.documented("tar -C / --one-file-system"))))
			l.reboot(func() {
				must(t, errors.Join(os.RemoveAll(l.path("root")), os.RemoveAll(l.manifests)))
				if out, err := exec.Command("sh", "-c", l.documented("tar -C / --numeric-owner")).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			})
			l.serve()
			l.awaitTrace("keeps", "opens:2 opens:4")
			if after := l.ready("keeps-n"); after.UID != before.UID {
				t.Errorf("UID %s, before %s", after.UID, before.UID)
			}
			if p := l.pod("ever-n"); p.Status.Phase != v1.PodSucceeded || l.traced("ever") != "ran" {
				t.Errorf("what is to run once ever ran %q: %s", l.traced("ever"), asJSON(p.Status))
			}
			if _, err := unix.Getxattr(runs, "trusted.test", make([]byte, 1)); err != nil {
				t.Errorf("attributes of files: %v", err)
			}
		})
	}
}
