package containerlog

import (
	"context"
	"strings"
	"testing"

	"podrun.io/podrun/internal/containerlog/cri"
)

func TestLastOutput(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	if got := tailer.LastOutput(context.Background(), r.inst); got != "" {
		t.Errorf("without a log: %q", got)
	}
	r.append(cri.Stdout, strings.Repeat("line\n", 200))
	r.append(cri.Stderr, "the reason\nunended")
	must(t, tailer.Finish(context.Background(), r.inst))
	got := tailer.LastOutput(context.Background(), r.inst)
	if lines := strings.Count(got, "\n"); lines != 79 || !strings.HasSuffix(got, "the reason\nunended") {
		t.Errorf("%d lines: %q", lines, got)
	}
}

func TestLastOutputIsShort(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	r.append(cri.Stdout, strings.Repeat("x", 40<<10)+"\n"+strings.Repeat("y", 1000)+"\n")
	must(t, tailer.Finish(context.Background(), r.inst))
	if got, want := tailer.LastOutput(context.Background(), r.inst), strings.Repeat("x", 1046)+"\n"+strings.Repeat("y", 1000)+"\n"; got != want {
		t.Errorf("%d bytes: %.20q… %q", len(got), got, got[max(0, len(got)-20):])
	}
}
