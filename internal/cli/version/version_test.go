package version

import (
	"runtime/debug"
	"testing"
)

// TestStampedCommit: the commit is the one that Go stamped or, if there is none, the one that the
// linker set.
func TestStampedCommit(t *testing.T) {
	t.Parallel()
	stamped := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: modified}}
	}
	for _, c := range []struct {
		settings []debug.BuildSetting
		linked   string
		commit   string
		modified bool
		text     string
	}{
		{nil, "", "", false, "<none>"},
		{nil, "abc", "abc", false, "abc"},
		{nil, "abc-dirty", "abc", true, "abc (modified)"},
		{stamped("false"), "", "abc", false, "abc"},
		{stamped("true"), "", "abc", true, "abc (modified)"},
		{stamped("false"), "def-dirty", "abc", false, "abc"},
	} {
		var v Versions
		if v.stamp(c.settings, c.linked); v.Commit != c.commit || v.Modified != c.modified || v.commitText() != c.text {
			t.Errorf("%v, %q: %+v, %q", c.settings, c.linked, v, v.commitText())
		}
	}
}

// TestServerText: to whom the containerd is not visible it is not said that none runs.
func TestServerText(t *testing.T) {
	t.Parallel()
	runs := Versions{ContainerdServer: "v2.4.2", ContainerdAddress: "/run/c.sock"}
	for _, c := range []struct {
		of   Versions
		root bool
		want string
	}{
		{runs, true, "v2.4.2 at /run/c.sock"},
		{runs, false, "v2.4.2 at /run/c.sock"},
		{Versions{}, true, "none running"},
		{Versions{}, false, "unknown: run it as root"},
	} {
		if got := c.of.serverText(c.root); got != c.want {
			t.Errorf("%+v, root %t: %q, want %q", c.of, c.root, got, c.want)
		}
	}
}
