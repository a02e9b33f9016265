package layout

import "testing"

func TestRootOfStandIn(t *testing.T) {
	for _, root := range []string{"/var/lib/podrun", "/bin", "/bin/bin", "/"} {
		for _, binary := range []string{"", "crun", "/usr/bin/crun"} {
			path := Dirs{Root: root}.StandIn(binary)
			if got := RootOfStandIn(path); got != root {
				t.Errorf("%s: %s, want %s", path, got, root)
			}
		}
	}
}
