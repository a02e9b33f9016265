package embedded_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"podrun.io/podrun/internal/embedded"
)

// TestShimServesItself: package runcshim serves only shims with this command line. With another one,
// containerd's program does, which works in an idle shim too.
func TestShimServesItself(t *testing.T) {
	t.Run("the program in podrun", func(t *testing.T) {
		if program, err := embedded.ShimProgram(); program == nil || err != nil {
			t.Skip("built without the shim's program (make test builds with it)", err)
		}
		servesItself(t)
	})
	t.Run("podrun itself", func(t *testing.T) {
		t.Setenv(ownShimOff, "1")
		servesItself(t)
	})
}

func servesItself(t *testing.T) {
	o := options(t)
	ctx, c := dial(t, ensure(t, o))
	shimIsProgram(t, o.Dirs)
	ctr, task := startTask(ctx, t, c, o.Dirs)
	shims := processes(t, o.Dirs.Embedded().Shim())
	if len(shims) != 1 {
		t.Fatalf("%d shims", len(shims))
	}
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(shims[0]), "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	_, args, _ := strings.Cut(strings.ReplaceAll(string(line), "\x00", " "), " ")
	if want := regexp.MustCompile(`^-namespace \S+ -id sleeper -address \S+ $`); !want.MatchString(args) {
		t.Errorf("the shim's arguments are %q", args)
	}

	program, err := embedded.ShimProgram()
	if err != nil {
		t.Fatal(err)
	}
	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(shims[0]), "environ"))
	if err != nil {
		t.Fatal(err)
	}
	own := program != nil && os.Getenv(ownShimOff) == ""
	if has := strings.Contains(string(environ), "GOMAXPROCS=1\x00"); own && !has {
		t.Errorf("its environment: %q", environ)
	}

	// It writes to containerd's log, not to a standard error that nobody reads.
	log, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(shims[0]), "fd/2"))
	if err != nil || filepath.Base(log) != "log" {
		t.Errorf("its standard error is %q, %v", log, err)
	}
	// A reader of its log that has gone, and a request for its stacks, do not end it.
	for _, s := range []syscall.Signal{syscall.SIGPIPE, syscall.SIGUSR1} {
		if err := syscall.Kill(shims[0], s); err != nil {
			t.Fatal(err)
		}
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Kill(ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if s := <-exited; s.ExitCode() != 128+uint32(syscall.SIGKILL) {
		t.Errorf("exit code %d", s.ExitCode())
	}
	if _, err := task.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := ctr.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shim ends", func() bool { return len(processes(t, o.Dirs.Embedded().Shim())) == 0 })
}
