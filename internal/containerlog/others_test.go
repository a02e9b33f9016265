package containerlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/sys/own"
)

// TestFIFOAmongLogs: a FIFO that nobody reads has the name of the file that a segment is compressed to.
func TestFIFOAmongLogs(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.append(cri.Stdout, "of the container\n")
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	for number := range 2 {
		must(t, os.WriteFile(fmt.Sprintf("%s.20260102-150405.%d", r.log(), number+1), []byte("old"), 0o600))
	}
	must(t, unix.Mkfifo(r.log()+".20260102-150405.1"+cri.CompressedSuffix+tmpSuffix, 0o666))
	done := make(chan error, 1)
	go func() { done <- cleanSegments(r.log(), 5) }()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a reader of the FIFO")
	}
	if want := []string{"2.log", "2.log.*.1.gz", "2.log.*.2"}; !slices.Equal(r.files(), want) {
		t.Errorf("%q", r.files())
	}
}

// TestLogDirectoriesOfOthers: a group may be able to write the log directory. podrun writes, compresses and removes
// nothing in directories that a member makes there in place of podrun's: new logs would get their group.
func TestLogDirectoriesOfOthers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for of, at := range map[string]func(log string) string{
		"log directory": func(log string) string { return filepath.Dir(filepath.Dir(filepath.Dir(log))) },
		"pod":           func(log string) string { return filepath.Dir(filepath.Dir(log)) },
		"container":     filepath.Dir,
	} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("of the %s, later %t", of, later), func(t *testing.T) {
				r := newFixture(t)
				if later {
					r.append(cri.Stdout, "earlier\n")
					must(t, catchUp(context.Background(), r.dirs, r.inst))
				}
				dir := at(r.log())
				must(t, os.MkdirAll(filepath.Dir(r.log()), 0o755))
				for number := range 4 { // more than are kept
					must(t, os.WriteFile(fmt.Sprintf("%s.20260102-150405.%d", r.log(), number+1), []byte("old"), 0o600))
				}
				must(t, errors.Join(os.Chown(dir, 1234, 1234), os.Chmod(dir, 0o2775)))
				before := size(t, dir)
				r.append(cri.Stdout, "of the container\n")
				var loose *own.LooseError
				if err := catchUp(context.Background(), r.dirs, r.inst); !errors.As(err, &loose) {
					t.Errorf("it is written: %v", err)
				}
				if err := cleanSegments(r.log(), 2); !errors.As(err, &loose) {
					t.Errorf("it is cleaned: %v", err)
				}
				must(t, New(Options{Dirs: r.dirs, Log: quiet}).RemoveLogs(r.inst)) // which keeps no container from being removed
				c := &converter{logPath: r.log(), disk: realDisk{}}
				if err := c.renameLog(); !errors.As(err, &loose) {
					t.Errorf("it is rotated: %v", err)
				}
				if after := size(t, dir); after != before {
					t.Errorf("%d there, and then %d", before, after)
				}
				// What was not written is not lost.
				must(t, errors.Join(os.Chown(dir, 0, 0), os.Chmod(dir, 0o755)))
				must(t, catchUp(context.Background(), r.dirs, r.inst))
				if text, _ := r.read(cri.ReadOptions{}); !strings.Contains(text, "of the container\n") {
					t.Errorf("%q", text)
				}
			})
		}
	}
}

// TestLogDirectoriesForAGroup: an administrator lets a group write what podrun has made, which goes on as before.
func TestLogDirectoriesForAGroup(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	r := newFixture(t)
	r.append(cri.Stdout, "earlier\n")
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	for _, dir := range []string{filepath.Dir(r.log()), filepath.Dir(filepath.Dir(r.log()))} {
		must(t, errors.Join(os.Chown(dir, 0, 1234), os.Chmod(dir, 0o2775)))
	}
	r.append(cri.Stdout, "later\n")
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	if text, _ := r.read(cri.ReadOptions{}); !strings.Contains(text, "later\n") {
		t.Errorf("%q", text)
	}
}
