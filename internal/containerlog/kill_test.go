package containerlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/cri"
)

const childDir = "PODRUN_TEST_TAILER_DIR"

// often rotates a log that is written fast; no part goes before a test has read it.
var often = Rotation{Size: 100 << 10, Files: 1000}

// TestMain is also the main function of the process that TestKillProcess kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		t := New(Options{Dirs: layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"}, Rotation: often, Log: quiet})
		t.Follow(web, 0)
		if err := t.Run(context.Background()); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestKillProcess kills real converter processes while a container writes and another process
// converts.
func TestKillProcess(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	self, err := os.Executable()
	must(t, err)
	var want strings.Builder
	ctx, stop := context.WithCancel(context.Background())
	var others sync.WaitGroup
	others.Go(func() {
		shim, err := os.OpenFile(rawPath(r.rawDir(), cri.Stdout), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer shim.Close()
		for i := 0; ctx.Err() == nil; i++ {
			line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", i%3000))
			want.WriteString(line)
			if _, err := shim.WriteString(line); err != nil {
				t.Error(err)
				return
			}
			if i%50 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
	others.Go(func() {
		for ctx.Err() == nil {
			if err := catchUp(context.Background(), r.dirs, r.inst); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * time.Millisecond)
		}
	})
	// Where processes are slow to start, some have to live for longer to be killed in the midst of their work.
	parts := func() int {
		segments, err := cri.Segments(r.log())
		must(t, err)
		return len(segments)
	}
	const most = 500
	for i := 0; i < 15 || parts() < 3 && i < most; i++ {
		child := exec.Command(self)
		child.Env = append(os.Environ(), childDir+"="+filepath.Dir(r.dirs.Root))
		must(t, child.Start())
		time.Sleep(time.Duration(rand.IntN(60+4*i)) * time.Millisecond)
		must(t, child.Process.Kill())
		var exit *exec.ExitError
		if err := child.Wait(); !errors.As(err, &exit) || exit.Exited() {
			t.Fatalf("the process ended by itself: %v", err)
		}
	}
	stop()
	others.Wait()
	must(t, New(Options{Dirs: r.dirs, Rotation: often, Log: quiet}).Finish(context.Background(), r.inst))
	if parts() < 3 {
		t.Errorf("%d parts", parts())
	}
	if got, _ := r.read(cri.ReadOptions{}); got != want.String() {
		t.Errorf("%d bytes of %d", len(got), want.Len())
	}
}
