package cmd

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/embedded"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	if code, is := embedded.Dispatch(context.Background(), os.Args); is {
		os.Exit(code)
	}
	// A test that does not set its directories must not use those of the machine.
	for _, name := range []string{"PODRUN_ROOT_DIR", "PODRUN_RUN_DIR", "PODRUN_LOG_DIR", "PODRUN_LOG_LINKS_DIR"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, "/dev/null/podrun")
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "containerd" { // what podrun starts as its own
		os.Exit(Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	testscript.Main(m, map[string]func(){
		"podrun": func() {
			os.Exit(Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// TestScripts runs the scripts in testdata/script with the real command line, each in its own
// directories.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("..", "testdata", "script"),
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			for name, dir := range map[string]string{"PODRUN_ROOT_DIR": "root", "PODRUN_RUN_DIR": "run", "PODRUN_LOG_DIR": "log", "PODRUN_LOG_LINKS_DIR": "containers"} {
				e.Setenv(name, filepath.Join(e.WorkDir, dir))
			}
			e.Setenv("TZ", "UTC")
			e.Setenv("GORACE", os.Getenv("GORACE")) // how each podrun of them ends under the race detector
			// The directory with podrun alone in it.
			e.Setenv("BIN", filepath.SplitList(e.Getenv("PATH"))[0])
			return nil
		},
		Condition: func(name string) (bool, error) { return name == "root" && os.Geteuid() == 0, nil },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ago":     ago,
			"exit":    exitCode,
			"own":     own,
			"serving": serving,
		},
	})
}

var agoPattern = regexp.MustCompile(`ago\(([^)]*)\)`)

// ago replaces ago(DURATION) in files by that time, because the age of a pod depends on the current
// time.
func ago(ts *testscript.TestScript, _ bool, files []string) {
	for _, file := range files {
		path := ts.MkAbs(file)
		b, err := os.ReadFile(path)
		ts.Check(err)
		text := agoPattern.ReplaceAllStringFunc(string(b), func(s string) string {
			d, err := time.ParseDuration(agoPattern.FindStringSubmatch(s)[1])
			ts.Check(err)
			return time.Now().UTC().Add(-d).Format(time.RFC3339)
		})
		ts.Check(os.WriteFile(path, []byte(text), 0o600))
	}
}

// own holds the lock files of pods until the script ends, as an owner process does.
func own(ts *testscript.TestScript, _ bool, files []string) {
	for _, file := range files {
		f, err := os.OpenFile(ts.MkAbs(file), os.O_CREATE|os.O_RDWR, 0o600)
		ts.Check(err)
		ts.Defer(func() { f.Close() })
		ts.Check(unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}))
	}
}

// serving holds the lock of a run directory until the script ends, as a serve does.
func serving(ts *testscript.TestScript, _ bool, files []string) {
	f, err := os.OpenFile(ts.MkAbs(files[0]), os.O_CREATE|os.O_RDWR, 0o600)
	ts.Check(err)
	ts.Defer(func() { f.Close() })
	ts.Check(unix.Flock(int(f.Fd()), unix.LOCK_EX))
}

// exitCode runs a command and checks its exit code: exit 2 podrun frobnicate.
func exitCode(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}
