package convert

import (
	"strings"
	"testing"
)

// TestTextsForKubernetes: what Kubernetes would replace in a text, and compose does not, stays as it is.
func TestTextsForKubernetes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "a$": "a$", "$a": "$a", "a$$b": "a$$$b", "$$": "$$$", "$(id)": "$$(id)", "$$(X)": "$$$$(X)", "${A}": "${A}",
	} {
		if got := escaped(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	made, err := File([]byte(`services: {a: {image: x, environment: [PASSWORD], command: 'sh -c "echo $$$$"', entrypoint: [a, $$$$],
		healthcheck: {test: 'test $$$$ != 1'}, volumes: ["~/data:/data", "./here:/here", "~other/x:/other"]}}`), Options{
		Dir: "/srv/app",
		Env: func(name string) (string, bool) {
			return map[string]string{"PASSWORD": "a$$b", "HOME": "/home/me"}[name], name == "PASSWORD" || name == "HOME"
		},
	})
	if err != nil || len(made.Documents) != 1 || len(made.Failed)+len(made.Dropped) > 0 {
		t.Fatalf("%v, %q", err, made)
	}
	for _, want := range []string{"value: a$$$b\n", "- echo $$$\n", "- $$$\n", "- test $$$ != 1\n", "path: /home/me/data\n", "path: /srv/app/here\n"} {
		if !strings.Contains(string(made.Documents[0]), want) {
			t.Errorf("it lacks %s%s", want, made.Documents[0])
		}
	}
}

// TestObjectsThatPodrunReads: they stay as they are, without what only an API server has.
func TestObjectsThatPodrunReads(t *testing.T) {
	t.Parallel()
	made, err := File([]byte("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast, uid: u}, provisioner: x.csi}\n---\n"+
		"{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: x.csi}, spec: {podInfoOnMount: true}}\n"), Options{})
	if err != nil || len(made.Documents) != 2 || len(made.Failed)+len(made.Dropped) > 0 {
		t.Fatalf("%v, %q", err, made)
	}
	if text := string(made.Documents[0]); !strings.Contains(text, "provisioner: x.csi") || strings.Contains(text, "uid") {
		t.Error(text)
	}
}
