package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		man + "/podrun.1":              "podrun-serve",
		man + "/podrun-serve.1":        "--manifests",
		man + "/podrun-port-forward.1": "podrun port-forward web 8080:80",
		bash:                           "__complete",
		zsh:                            "#compdef podrun",
		fish:                           "complete -c podrun",
	} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !bytes.Contains(got, []byte(want)) {
			t.Errorf("%s has no %q: %v", file, want, err)
		}
	}
	hidden, err := filepath.Glob(filepath.Join(dir, man, "*containerd*"))
	if err != nil || len(hidden) > 0 {
		t.Errorf("pages of what is not for people: %v, %v", hidden, err)
	}
}
