package containerlog

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/cri"
)

// successor is another instance of the same attempt, as there is when what was kept of a pod is lost.
func (r fixture) successor() fixture {
	next := r
	next.inst.ID = "i2"
	must(r.t, os.MkdirAll(next.rawDir(), 0o755))
	for _, s := range streams {
		next.append(s, "")
	}
	return next
}

// everything is what the log's files have.
func (r fixture) everything() string {
	r.t.Helper()
	out, _ := r.read(cri.ReadOptions{})
	return out
}

// TestTwoInstancesOfAnAttempt: two instances of one attempt, the one that ends and its successor,
// write at the same time: no output of either is lost, and neither continues the other's log.
func TestTwoInstancesOfAnAttempt(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]bool{"one process": true, "a process for each batch": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := newFixture(t)
			tailer := New(Options{Dirs: old.dirs, Log: quiet})
			var kept []*converter
			batch := func(r fixture) {
				t.Helper()
				if !open {
					must(t, catchUp(context.Background(), r.dirs, r.inst))
					return
				}
				for _, c := range kept {
					if c.rawDir == r.rawDir() {
						_, err := c.batch(newBuffers(), false)
						must(t, err)
						return
					}
				}
				c, err := openConverter(r.dirs, r.inst, Rotation{})
				must(t, err)
				t.Cleanup(c.close)
				kept = append(kept, c)
				_, err = c.batch(newBuffers(), false)
				must(t, err)
			}
			old.append(cri.Stdout, "old 1\n")
			batch(old)
			next := old.successor()
			for _, n := range []string{"1\n", "2\n", "3\n"} {
				next.append(cri.Stdout, "new "+n)
				batch(next)
				old.append(cri.Stdout, "late "+n)
				batch(old)
			}
			must(t, tailer.Finish(context.Background(), old.inst))
			next.append(cri.Stdout, "new 4\n")
			must(t, tailer.Finish(context.Background(), next.inst))
			got := next.everything()
			if want := "old 1\nlate 1\nlate 2\nlate 3\nnew 1\nnew 2\nnew 3\nnew 4\n"; got != want {
				t.Errorf("got %q", got)
			}
			text, err := os.ReadFile(next.log())
			must(t, err)
			if strings.Contains(string(text), "late") || !strings.Contains(string(text), "new 4") {
				t.Errorf("the log that is written to has %q", text)
			}
		})
	}
}

// TestPartThatIsWrittenTo: a rotated part is not compressed while an instance writes to it.
func TestPartThatIsWrittenTo(t *testing.T) {
	t.Parallel()
	old := newFixture(t)
	old.append(cri.Stdout, "old 1\n")
	c, err := openConverter(old.dirs, old.inst, Rotation{})
	must(t, err)
	defer c.close()
	_, err = c.batch(newBuffers(), false)
	must(t, err)
	next := old.successor()
	rotation := Rotation{Size: 50, Files: 9}
	next.fill(rotation, 0, 8)
	must(t, cleanSegments(old.log(), rotation.Files))
	old.append(cri.Stdout, "old 2\n")
	_, err = c.batch(newBuffers(), false)
	must(t, err)
	if got := next.everything(); !strings.HasPrefix(got, "old 1\nold 2\nline 0\n") {
		t.Errorf("got %q", got)
	}
}

// TestLegacyInstance: an instance that the former version started has a raw log directory named by
// its attempt, and a checkpoint without the log's inode.
func TestLegacyInstance(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.append(cri.Stdout, "one\n")
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	legacy := r.dirs.RawLogs(r.inst)[1]
	must(t, os.Rename(r.rawDir(), legacy))
	if filepath.Base(legacy) != "log.app.2" {
		t.Errorf("the former version's directory is %s", legacy)
	}
	file, err := os.ReadFile(filepath.Join(legacy, "checkpoint"))
	must(t, err)
	state, ok := decode(file)
	if !ok {
		t.Fatal("no checkpoint")
	}
	for _, slot := range []checkpoint{state, {seq: state.seq - 1}} {
		copy(file[slot.slot():], slot.encodeLegacy())
	}
	must(t, os.WriteFile(filepath.Join(legacy, "checkpoint"), file, 0o600))
	f, err := os.OpenFile(rawPath(legacy, cri.Stdout), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString("two\n")
	must(t, err)
	must(t, f.Close())
	must(t, New(Options{Dirs: r.dirs, Log: quiet}).Finish(context.Background(), r.inst))
	if got := r.everything(); got != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	if left, err := os.ReadDir(legacy); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestFinishedBesideLegacy: Finish of an instance that is finished already does not touch the raw
// files of an instance of the same attempt that the former version started.
func TestFinishedBesideLegacy(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	legacy := r.dirs.RawLogs(r.inst)[1]
	must(t, os.MkdirAll(legacy, 0o755))
	must(t, os.WriteFile(rawPath(legacy, cri.Stdout), []byte("theirs\n"), 0o600))
	must(t, os.WriteFile(layout.TerminationLog(legacy), nil, 0o600))
	r.append(cri.Stdout, "one\n")
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	for range 2 {
		must(t, tailer.Finish(context.Background(), r.inst))
	}
	if left, err := os.ReadDir(legacy); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
	if got := r.everything(); got != "one\n" {
		t.Errorf("got %q", got)
	}
}

// encodeLegacy is what the former version wrote.
func (c checkpoint) encodeLegacy() []byte {
	b := make([]byte, 0, slotSize)
	for _, v := range []uint64{legacyMagic, c.seq, uint64(c.raw[cri.Stdout]), uint64(c.raw[cri.Stderr]), uint64(c.size)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))[:slotSize]
}
