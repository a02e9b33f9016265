package connection

import (
	"errors"
	"os"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// TestBind: the pods of a run directory are in one namespace of one containerd at a time.
func TestBind(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	own := binding{Embedded, "podrun", "boot"}
	left := true // something of pods
	enter := func(p binding) (func(), error) {
		return bind(dirs, p, func() (bool, error) { return !left, nil })
	}
	must := func(p binding) func() {
		t.Helper()
		leave, err := enter(p)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	refused := func(p binding, want ...string) {
		t.Helper()
		_, err := enter(p)
		var elsewhere *ElsewhereError
		if !errors.As(err, &elsewhere) {
			t.Fatalf("%v: %v", p, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error()+elsewhere.Hint(), w) {
				t.Errorf("%s; %s: want %q", err, elsewhere.Hint(), w)
			}
		}
	}
	must(own)() // also where an older podrun's pods are
	first, second := must(own), must(own)
	namespace, system := binding{Embedded, "other", "boot"}, binding{"/run/c.sock", "podrun", "boot"}
	refused(namespace, dirs.Run, "namespace podrun of podrun's own containerd", "--containerd-address embedded --containerd-namespace podrun")
	first()
	second()
	refused(system, dirs.Binding())
	left = false
	leave := must(system)
	left = true
	must(binding{"/run/moved.sock", "podrun", "boot"})()
	left = false
	refused(own, "the containerd at /run/c.sock") // the other has none yet, and may at any moment
	leave()
	left = true
	refused(own)
	must(binding{Embedded, "podrun", "next boot"})() // nothing runs of what did
	refused(binding{"/run/c.sock", "podrun", "next boot"})
	if err := os.WriteFile(dirs.Binding(), []byte("next boot\npodr"), 0o600); err != nil { // cut off
		t.Fatal(err)
	}
	must(own)()
}
