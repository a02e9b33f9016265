package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

// ErrNoRunc says that runc is not on PATH, so that no container could be started.
var ErrNoRunc = errors.New("runc not found in PATH; on Debian: apt-get install runc")

// ErrKilled says that a signal ended the daemon before it was ready.
var ErrKilled = errors.New("killed while it started")

// ErrNotRoot says that the embedded containerd was asked for by another user than root.
var ErrNotRoot = errors.New("the embedded containerd needs root")

// ErrRunning says that another daemon serves the same directories.
var ErrRunning = errors.New("the embedded containerd is already running")

// DefaultIdleGrace is how long a daemon that nothing needs stays.
const DefaultIdleGrace = 2 * time.Second

// maxSocketPath is the longest path, in bytes, on which containerd listens.
const maxSocketPath = 104

// Options are Serve's and Ensure's.
type Options struct {
	Dirs layout.Dirs
	// Log receives containerd's warnings and errors. Nil: standard error.
	Log *slog.Logger
	// NoSync makes the daemon's database faster and lets a power loss ruin it. For machines that are
	// thrown away. Serve only.
	NoSync bool
	// IdleGrace is how long the daemon stays when nothing needs it; 0: DefaultIdleGrace. Serve only.
	IdleGrace time.Duration
	// Args are the arguments with which Ensure runs this program so that it calls Serve. None:
	// containerd --root-dir ROOT --run-dir RUN.
	Args []string
}

// checked fills in defaults, makes paths absolute and says what would keep a daemon from starting.
func (o Options) checked() (Options, error) {
	for _, p := range []*string{&o.Dirs.Root, &o.Dirs.Run} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return o, err
		}
		*p = abs
		if err := sys.OwnDir(abs); err != nil {
			return o, err
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if o.IdleGrace == 0 {
		o.IdleGrace = DefaultIdleGrace
	}
	if len(o.Args) == 0 {
		o.Args = []string{"containerd", "--root-dir", o.Dirs.Root, "--run-dir", o.Dirs.Run}
	}
	if os.Geteuid() != 0 {
		return o, ErrNotRoot
	}
	if _, err := exec.LookPath("runc"); err != nil {
		return o, ErrNoRunc
	}
	if s := o.Dirs.ContainerdSocket(); len(s) > maxSocketPath {
		return o, fmt.Errorf("socket path %s has %d bytes, more than the %d that a socket's path may have: use a shorter run directory",
			s, len(s), maxSocketPath)
	}
	// Others may pass through the state directory: user-namespaced containers have their root file
	// systems below it. What is in it has its own permissions.
	if err := os.MkdirAll(o.Dirs.ContainerdState(), layout.ModePassable); err != nil {
		return o, err
	}
	return o, os.MkdirAll(o.Dirs.Containerd(), 0o700)
}

// ttrpcSocket is where the shims publish events.
func ttrpcSocket(d layout.Dirs) string { return filepath.Join(d.ContainerdState(), "ttrpc.sock") }

// logFile is where the daemon's output goes.
func logFile(d layout.Dirs) string { return filepath.Join(d.Containerd(), "containerd.log") }

// BundleDir is a task's directory in the daemon's state. In it is bootstrap.json, whose address is the
// shim's.
func BundleDir(d layout.Dirs, namespace, id string) string {
	return filepath.Join(d.ContainerdState(), "io.containerd.runtime.v2.task", namespace, id)
}
