package containerlog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/containerlog/links"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
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

// TestRemovalFollowsNoLink: nor does it make podrun remove, compress or rename files elsewhere.
func TestRemovalFollowsNoLink(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(log string) string{
		"the pod's directory":       func(log string) string { return filepath.Dir(filepath.Dir(log)) },
		"the container's directory": filepath.Dir,
	} {
		r := newFixture(t)
		r.append(cri.Stdout, "of the container\n")
		must(t, catchUp(context.Background(), r.dirs, r.inst))
		for number := range 4 { // more than are kept
			must(t, os.WriteFile(fmt.Sprintf("%s.20260102-150405.%d", r.log(), number+1), []byte("old"), 0o600))
		}
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		link := at(r.log())
		must(t, os.Rename(link, elsewhere))
		must(t, os.Symlink(elsewhere, link))
		before := size(t, elsewhere)
		if err := cleanSegments(r.log(), 2); err == nil {
			t.Errorf("%s: nobody is told that old logs cannot be removed", name)
		}
		tailer := New(Options{Dirs: r.dirs, Log: quiet})
		must(t, tailer.RemoveLogs(r.inst)) // which keeps no container from being removed
		c := &converter{logPath: r.log(), disk: realDisk{}}
		if err := c.renameLog(); err == nil {
			t.Errorf("%s: nobody is told that the log cannot be rotated", name)
		}
		if after := size(t, elsewhere); after != before {
			t.Errorf("%s: %d behind the link, and then %d", name, before, after)
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

// TestLinksToLogs: collectors find the log of a followed instance by its link, that of one which ended before it was
// followed, and none of what is removed.
func TestLinksToLogs(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.inst.ID = strings.Repeat("a", 32)
	r.dirs.LogLinks = filepath.Join(filepath.Dir(r.dirs.Log), "containers")
	must(t, os.MkdirAll(r.rawDir(), 0o755))
	r.append(cri.Stdout, "hello\n")
	link := filepath.Join(r.dirs.LogLinks, r.inst.Key.Name+"_"+r.inst.Key.Namespace+"_"+r.inst.Container+"-"+r.inst.ID+".log")
	exists := func() bool { _, err := os.Lstat(link); return err == nil }
	ctx, cancel := context.WithCancel(t.Context())
	running := func(links bool) (*Tailer, func()) {
		tailer := New(Options{Dirs: r.dirs, Links: links, Log: quiet})
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- tailer.Run(ctx) }()
		return tailer, func() { cancel(); <-done }
	}
	defer cancel()
	tailer, stop := running(true)
	tailer.Follow(r.inst, 0)
	test.Eventually(t, "the log behind the link", func() bool {
		text, err := os.ReadFile(link)
		return err == nil && strings.HasSuffix(string(text), " stdout F hello\n")
	})
	stop()
	// podrun is started again, and makes no links any more: those that it made go.
	tailer, stop = running(false)
	tailer.Follow(r.inst, 0)
	test.Eventually(t, "the link to go", func() bool { return !exists() })
	stop()
	tailer = New(Options{Dirs: r.dirs, Links: true, Log: quiet}) // does not run: the container was too quick
	must(t, tailer.Finish(ctx, r.inst))
	if !exists() {
		t.Error("no link to the log of a container that has ended")
	}
	next := r.inst
	next.Attempt++
	must(t, tailer.RemoveLogs(pod.Instance{Key: r.inst.Key, UID: r.inst.UID, Container: "other", Attempt: 9}))
	if !exists() {
		t.Error("removed with another container's")
	}
	must(t, tailer.RemoveLogs(next))
	if exists() {
		t.Error("the link is left, without its log")
	}
	must(t, links.Create(r.dirs, r.inst))
	tailer.Forget(r.inst.UID)
	if exists() {
		t.Error("the link is left, without its pod")
	}
	// What cannot be made keeps nothing from its log.
	must(t, os.RemoveAll(r.dirs.LogLinks))
	must(t, os.WriteFile(r.dirs.LogLinks, nil, 0o600))
	again := r.successor()
	again.append(cri.Stdout, "later\n")
	must(t, tailer.Finish(ctx, again.inst))
	if out, _ := again.read(cri.ReadOptions{}); !strings.HasSuffix(out, "later\n") {
		t.Errorf("%q", out)
	}
}
