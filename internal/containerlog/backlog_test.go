package containerlog

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"podrun.io/podrun/internal/containerlog/cri"
)

// TestFloodIsPassedOver: of waiting output, what rotation would have removed is left out, up to the
// beginning of a line, and the log is as full as if everything had been converted.
func TestFloodIsPassedOver(t *testing.T) {
	t.Parallel()
	rotation := Rotation{Size: 2000, Files: 3}
	for name, c := range map[string]struct{ lines, first int }{
		"more than is kept":                 {20_000, 19_000},
		"no more than may wait":             {700, 0},
		"a line that is longer than a read": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t)
			r.append(cri.Stderr, "error\n")
			var all strings.Builder
			for i := range c.lines {
				fmt.Fprintf(&all, "line %06d\n", i)
			}
			if c.lines == 0 {
				all.WriteString(strings.Repeat("x", 3*sliceSize))
			}
			r.append(cri.Stdout, all.String())
			conv, err := openConverter(r.dirs, r.inst, rotation)
			must(t, err)
			defer conv.close()
			b := newBuffers()
			// Nothing removes the old files here: all that was converted is there.
			for more := true; more; {
				more, err = conv.batch(b, true)
				must(t, err)
			}
			got, gotErr := r.read(cri.ReadOptions{})
			if gotErr != "error\n" {
				t.Errorf("the other stream: %q", gotErr)
			}
			if !strings.HasSuffix(all.String(), got) {
				t.Fatalf("the log is not the end of the output: %.80q", got)
			}
			wanted := int64(all.Len())
			if wanted > rotation.retained()*3/2 {
				wanted = rotation.retained()
			}
			if short := wanted - int64(len(got)); short < 0 || short >= 12 {
				t.Errorf("%d bytes, want %d", len(got), wanted)
			}
			if passed := int64(all.Len() - len(got)); conv.skipped != passed {
				t.Errorf("%d bytes were passed over, it tells of %d", passed, conv.skipped)
			}
		})
	}
}

// TestLogWithoutRotationIsWhole: without rotation no output is left out.
func TestLogWithoutRotationIsWhole(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	text := strings.Repeat("a line\n", 1<<18)
	r.append(cri.Stdout, text)
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	if got, _ := r.read(cri.ReadOptions{}); got != text {
		t.Errorf("%d bytes, want %d", len(got), len(text))
	}
}

// endless is a disk on which a container writes more whenever something of it was converted.
type endless struct {
	realDisk
	more func()
}

func (d endless) WriteAt(f *os.File, b []byte, off int64) (int, error) {
	d.more()
	return d.realDisk.WriteAt(f, b, off)
}

// TestFloodIsCaughtUpWith: who reads the log of a container that writes without end gets what was there when it asked.
func TestFloodIsCaughtUpWith(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	text := strings.Repeat("0123456789abcde\n", 1<<16)
	r.append(cri.Stdout, text)
	c, err := openConverter(r.dirs, r.inst, Rotation{})
	must(t, err)
	defer c.close()
	wrote := 1
	c.disk = endless{more: func() {
		if wrote++; wrote > 100 { // a test that fails must end
			t.Error("it reads without end")
			return
		}
		r.append(cri.Stdout, text)
	}}
	must(t, catchUpWith(t.Context(), c))
	got, _ := r.read(cri.ReadOptions{})
	if len(got) < len(text) || wrote > 100 {
		t.Errorf("%d bytes of %d are read, of %d pieces", len(got), len(text), wrote)
	}
}
