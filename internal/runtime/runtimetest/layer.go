package runtimetest

import (
	"testing"

	"podrun.io/podrun/internal/runtime"
)

// testLayer checks that LayerSize measures what an instance writes to its root filesystem, and
// nothing of its image.
func testLayer(t *testing.T, s subject) {
	p := s.newPod("layer-node", "uid-layer", "main")
	start := s.ready(t, p)
	c := s.start(t, start)
	size := func(id string) int64 {
		t.Helper()
		size, err := s.LayerSize(t.Context(), id)
		must(t, err)
		if size.Bytes > 0 && size.Files == 0 {
			t.Errorf("%d bytes in no file", size.Bytes)
		}
		return size.Bytes
	}
	const written = 3 << 20
	before := size(c.ID)
	if before > 1<<19 {
		t.Errorf("a new one takes %d bytes", before)
	}
	if s.Runs {
		code, err := s.Exec(t.Context(), c.ID,
			[]string{"sh", "-c", "dd if=/dev/zero of=/written bs=1M count=3; sync"}, runtime.ExecIO{})
		if err != nil || code != 0 {
			t.Fatal(code, err)
		}
		if grown := size(c.ID) - before; grown < written || grown > written+1<<18 {
			t.Errorf("it grew by %d bytes, want %d", grown, written)
		}
		// Directories so deep that their path is longer than the kernel accepts.
		// Made from the inside to the outside, they are within reach of every shell.
		const deep = "name=$(printf %0200d 0); mkdir $name; dd if=/dev/zero of=$name/x bs=1M count=3; " +
			"for i in $(seq 50); do mkdir n && mv $name n && mv n $name || exit 1; done; sync"
		code, err = s.Exec(t.Context(), c.ID, []string{"sh", "-c", deep}, runtime.ExecIO{})
		if err != nil || code != 0 {
			t.Fatal(code, err)
		}
		if grown := size(c.ID) - before; grown < 2*written || grown > 2*written+1<<19 {
			t.Errorf("it grew by %d bytes, want %d", grown, 2*written)
		}
	}
	if got := size("missing"); got != 0 {
		t.Errorf("one that is gone takes %d bytes", got)
	}
	s.remove(t, p)
	if got := size(c.ID); got != 0 {
		t.Errorf("one that was removed takes %d bytes", got)
	}
}
