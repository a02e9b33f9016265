package accounts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/pod"
)

// TestGroupsOfTheImage checks that an image cannot give a user more groups than the kernel supports, and
// that the lines of /etc/group are counted for every user.
func TestGroupsOfTheImage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "etc", file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("passwd", "worker:x:7:1::/:\n")
	var lines strings.Builder
	for n := range pod.MaxGroups {
		fmt.Fprintf(&lines, "g%d:x:%d:worker\n", n, n+1)
	}
	write("group", lines.String())
	for _, name := range []string{"worker", "8"} {
		user, err := Find(root, name)
		if err != nil || user.GroupEntries != pod.MaxGroups+1 {
			t.Errorf("%s: %d lines, %v", name, user.GroupEntries, err)
		}
	}
	write("group", lines.String()+"more:x:70000:worker\n")
	if _, err := Find(root, "worker"); err == nil || !strings.Contains(err.Error(), "in 65537 groups; the maximum is 65536") {
		t.Errorf("too many: %v", err)
	}
	if user, err := Find(root, "8"); err != nil || len(user.AdditionalGids) != 1 {
		t.Errorf("a user without an entry: %+v, %v", user, err)
	}
}
