package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// toJSON is a manifest in JSON.
func toJSON(t *testing.T, text string) string {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	must(t, err)
	return string(out)
}

func TestFormsOfManifests(t *testing.T) {
	n := newNode(t)
	pod := func(name string) string { return manifest(name, "Always", forever) }
	n.write("a.json", toJSON(t, pod("a")))
	n.write("b.json", `{"apiVersion":"v1","kind":"List","items":[`+toJSON(t, pod("b"))+`]}`)
	n.write("c.yml", "---\n"+pod("c")+"---\n")
	must(t, os.WriteFile(n.path("elsewhere"), []byte(pod("d")), 0o644))
	must(t, os.Symlink(n.path("elsewhere"), filepath.Join(n.manifests, "d.yaml")))
	must(t, os.Mkdir(filepath.Join(n.manifests, "sub"), 0o755))
	for _, name := range []string{".x.yaml", "x.yaml.bak", "x.yaml~", "sub/x.yaml", "x"} {
		must(t, os.WriteFile(filepath.Join(n.manifests, name), []byte(pod("x")), 0o644))
	}
	n.write("twice.yaml", strings.Replace(pod("w"), "restartPolicy: Always", "restartPolicy: Always\n  restartPolicy: Never", 1))
	// A single file beside the directory, whatever its name.
	single := n.path("single.manifest")
	must(t, os.WriteFile(single, []byte(pod("s")), 0o644))
	n.serve("--manifests=" + single)
	for _, name := range []string{"a-n", "b-n", "c-n", "d-n", "s-n"} {
		n.ready(name)
	}
	n.said("twice.yaml:7: ")
	if r := n.run("get", "pods"); !strings.Contains(r.stderr, "twice.yaml:7: spec.restartPolicy: duplicate key") {
		t.Errorf("get pods: %v", r)
	}
	if pods := n.pods(); len(pods) != 5 {
		t.Errorf("pods: %s", asJSON(pods))
	}

	edited := func(name string) string { return inContainer(pod(name), "env: [{name: A, value: "+name+"}]") }
	must(t, os.WriteFile(single, []byte(edited("s")), 0o644))
	must(t, os.WriteFile(n.path("elsewhere"), []byte(edited("d")), 0o644)) // in place, behind the link
	for _, name := range []string{"s", "d"} {
		n.await(name+" to be replaced", func() error {
			r := n.run("exec", name, "--", "sh", "-c", "echo $A")
			if r.code != 0 || r.stdout != name+"\n" {
				return errors.New(r.String())
			}
			return nil
		})
	}
	// The one of the two sources goes, and is not taken for an empty one.
	must(t, os.Remove(single))
	n.wrong("s-n", "no such file")
	n.remove("b.json")
	n.gone("b-n")
	n.ready("s-n")
}

func TestOnePodInTwoFiles(t *testing.T) {
	n := newNode(t)
	one := manifest("a", "Always", forever)
	other := inContainer(one, "env: [{name: A, value: other}]")
	n.write("m.yaml", one)
	n.serve()
	pid := n.mainPID(n.ready("a-n"), "c")
	// Neither a later nor an earlier name displaces what runs.
	for _, name := range []string{"z.yaml", "b.yaml"} {
		n.write(name, other)
		n.wrong("a-n", name+": pod default/a-n is also in ")
		n.remove(name)
		n.wrong("a-n", "")
	}
	n.write("z.yaml", other)
	n.wrong("a-n", "z.yaml")
	if wide := n.ok("get", "pods", "-o", "wide"); !strings.Contains(wide, "m.yaml (also in "+filepath.Join(n.manifests, "z.yaml")+")") {
		t.Errorf("get -o wide:\n%s", wide)
	}
	if n.mainPID(n.ready("a-n"), "c") != pid {
		t.Error("it was restarted")
	}
	// Without the first the other takes over.
	n.remove("m.yaml")
	n.await("the other to take over", func() error {
		if r := n.run("exec", "a", "--", "sh", "-c", "echo $A"); r.stdout != "other\n" {
			return errors.New(r.String())
		}
		return nil
	})
}

func TestRecreatedWhileItStops(t *testing.T) {
	n := newNode(t)
	data := n.path("data")
	must(t, os.Mkdir(data, 0o777))
	slow := `echo up >>/data/log; trap "echo term >>/data/log; sleep 1; echo down >>/data/log; exit 0" TERM; while :; do sleep 0.1; done`
	text := inContainer(withGrace(manifest("a", "Always", slow, "volumes: [{name: data, hostPath: {path: "+data+"}}]"), 20),
		"volumeMounts: [{name: data, mountPath: /data}]")
	log := func(want string) func() error {
		return func() error {
			if got, _ := os.ReadFile(filepath.Join(data, "log")); string(got) != want {
				return fmt.Errorf("log: %q", got)
			}
			return nil
		}
	}
	n.write("a.yaml", text)
	n.serve()
	n.ready("a-n")
	n.await("it to be up", log("up\n"))
	n.remove("a.yaml")
	n.await("the signal", log("up\nterm\n"))
	n.write("a.yaml", text)
	// The old one ends in peace; then there is one new one.
	n.await("a new one", log("up\nterm\ndown\nup\n"))
	p := n.ready("a-n")
	if restarts := p.Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("%d restarts, though nothing has crashed", restarts)
	}
	n.remove("a.yaml")
	n.gone("a-n")
	if err := log("up\nterm\ndown\nup\nterm\ndown\n")(); err != nil {
		t.Error(err)
	}
}

// Editors move the old file aside before they write the new one.
func TestMovedAsideWhileItIsWritten(t *testing.T) {
	n := newNode(t)
	text := manifest("a", "Always", forever)
	n.write("a.yaml", text)
	n.serve()
	before := n.ready("a-n")
	path := filepath.Join(n.manifests, "a.yaml")
	began := time.Now()
	must(t, os.Rename(path, path+"~"))
	time.Sleep(20 * time.Millisecond)
	n.write("a.yaml", text)
	away := time.Since(began)
	n.write("b.yaml", manifest("b", "Always", forever))
	n.ready("b-n")
	// On a machine that stalls it may be away for so long that it counts as removed.
	if after := n.ready("a-n"); after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID && away < 100*time.Millisecond {
		t.Errorf("replaced, though its manifest was away for %s only", away)
	}
}

// A removal goes on though the manifest turns bad meanwhile, and a pod whose manifest was bad from the
// start of podrun stays.
func TestBadManifestBesideARemoval(t *testing.T) {
	n := newNode(t)
	slow := `trap "sleep 2; exit 0" TERM; while :; do sleep 0.1; done`
	n.write("a.yaml", withGrace(manifest("a", "Always", slow), 20))
	n.serve()
	n.ready("a-n")
	n.write("a.yaml", manifest("b", "Always", forever))
	b := n.ready("b-n")
	n.write("a.yaml", "{")
	n.gone("a-n")
	pid := n.mainPID(n.wrong("b-n", "a.yaml"), "c")
	if pid != n.mainPID(b, "c") {
		t.Error("b was restarted")
	}
	if r := n.run("describe", "pod", "b"); r.code != 0 || !strings.Contains(r.stdout, "Manifest Error:     "+filepath.Join(n.manifests, "a.yaml")) {
		t.Error(r)
	}
}

// Writers that take their time neither start half a pod nor stop one.
func TestSlowWriters(t *testing.T) {
	n := newNode(t)
	a := manifest("a", "Always", forever)
	n.write("a.yaml", a)
	n.serve()
	p := n.ready("a-n")
	pid := n.mainPID(p, "c")
	slowly := func(name, text string) {
		t.Helper()
		f, err := os.Create(filepath.Join(n.manifests, name))
		must(t, err)
		// The first part alone would be a pod, too.
		first := strings.Index(text, "---\n")
		_, err = io.WriteString(f, text[:first])
		must(t, err)
		time.Sleep(500 * time.Millisecond)
		if p := n.pod("half-n"); p != nil {
			t.Errorf("half of %s was read", name)
		}
		if err := isReady(n.pod("a-n")); err != nil || n.mainPID(n.pod("a-n"), "c") != pid {
			t.Errorf("while %s is written: %v", name, err)
		}
		_, err = io.WriteString(f, text[first:])
		must(t, err)
		must(t, f.Close())
	}
	half := manifest("half", "Always", forever) + "---\n" + strings.Replace(manifest("b", "Always", forever), "kind: Pod", "kind: Pod # half", 1)
	slowly("b.yaml", half)
	n.ready("b-n")
	n.ready("half-n")
	n.remove("b.yaml")
	n.gone("half-n")
	slowly("a.yaml", "# again\n---\n"+a)
	if again := n.ready("a-n"); again.UID != p.UID || n.mainPID(again, "c") != pid {
		t.Error("a was restarted")
	}
}

func TestEditReplacesOnePodOnly(t *testing.T) {
	n := newNode(t)
	pids, uids := map[string]int{}, map[string]types.UID{}
	for _, name := range []string{"a", "b", "c"} {
		n.write(name+".yaml", manifest(name, "Always", forever))
	}
	n.serve()
	for _, name := range []string{"a", "b", "c"} {
		p := n.ready(name + "-n")
		pids[name], uids[name] = n.mainPID(p, "c"), p.UID
	}
	n.write("b.yaml", inContainer(manifest("b", "Always", forever), "args: [x]"))
	diff := n.run("diff", "--manifests="+n.manifests, "--node-name=n", "-o", "json")
	var shown struct {
		Changes []struct{ Action, Name string }
	}
	must(t, json.Unmarshal([]byte(diff.stdout), &shown))
	if len(shown.Changes) != 3 {
		t.Errorf("diff: %v", diff)
	}
	p := n.awaitPod("b-n", "to be replaced", func(p *v1.Pod) error {
		if p.UID == uids["b"] { // its process may end at any moment
			return errors.New("the same revision")
		}
		return isReady(p)
	})
	if n.mainPID(p, "c") == pids["b"] {
		t.Error("the same process")
	}
	for _, name := range []string{"a", "c"} {
		if n.mainPID(n.ready(name+"-n"), "c") != pids[name] {
			t.Errorf("%s was restarted", name)
		}
	}
	// Now nothing differs.
	if r := n.run("diff", "--manifests="+n.manifests, "--node-name=n"); r.code != 0 || strings.Count(r.stdout, "= keep ") != 3 {
		t.Errorf("diff: %v", r)
	}
}

func TestPermissionsOfManifests(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", forever))
	path := filepath.Join(n.manifests, "a.yaml")
	must(t, os.Chmod(path, 0o666))
	n.serve()
	pid := n.mainPID(n.ready("a-n"), "c")
	n.said("a.yaml: can be written by every user (mode 0666); chmod go-w it")
	n.await("an event", func() error {
		if said := n.ok("events", "a-n"); !strings.Contains(said, "InsecureManifest") || !strings.Contains(said, "mode 0666") {
			return errors.New(said)
		}
		return nil
	})
	must(t, os.Chmod(path, 0o644))
	n.said("manifest warning is gone")
	n.end(15)
	must(t, os.Chmod(path, 0o666))
	n.serve("--strict-permissions")
	if n.mainPID(n.wrong("a-n", "can be written by every user"), "c") != pid {
		t.Error("it was restarted")
	}
	must(t, os.Chmod(path, 0o644))
	if n.mainPID(n.wrong("a-n", ""), "c") != pid {
		t.Error("it was restarted")
	}
}
