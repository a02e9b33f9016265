package containerlog

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"podrun.io/podrun/internal/containerlog/cri"
)

// TestLogsFollowNoLink: a group may be able to write the log directory, or what is above it. What it puts there never
// makes podrun write elsewhere.
func TestLogsFollowNoLink(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(log string) string{
		"the pod's directory":       func(log string) string { return filepath.Dir(filepath.Dir(log)) },
		"the container's directory": filepath.Dir,
		"the log":                   func(log string) string { return log },
	} {
		for _, later := range []bool{false, true} {
			r := newFixture(t)
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			link := at(r.log())
			if later {
				r.append(cri.Stdout, "earlier\n")
				must(t, catchUp(context.Background(), r.dirs, r.inst))
				must(t, os.Rename(link, elsewhere))
			} else if name == "the log" {
				must(t, os.WriteFile(elsewhere, nil, 0o600))
			} else {
				must(t, os.Mkdir(elsewhere, 0o755))
			}
			must(t, os.MkdirAll(filepath.Dir(link), 0o755))
			must(t, os.Symlink(elsewhere, link))
			before := size(t, elsewhere)
			r.append(cri.Stdout, "of the container\n")
			err := catchUp(context.Background(), r.dirs, r.inst)
			if after := size(t, elsewhere); after != before {
				t.Errorf("%s, later %t: %d bytes behind the link, and then %d", name, later, before, after)
			}
			if name == "the log" && err != nil {
				t.Errorf("later %t: the link stays in the way: %v", later, err)
			}
		}
	}
}

// size is how much is in what may be a directory.
func size(t *testing.T, path string) (all int64) {
	t.Helper()
	must(t, filepath.Walk(path, func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			all++
		}
		if err == nil && info.Mode().IsRegular() {
			all += info.Size()
		}
		return err
	}))
	return all
}
