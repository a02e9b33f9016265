package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys/own"
)

// ErrNoRunc means that runc is not on PATH, so that no container could be started.
var ErrNoRunc = errors.New("runc not found in PATH; on Debian: apt-get install runc")

// ErrKilled means that a signal killed the daemon before it was ready.
var ErrKilled = errors.New("killed while it started")

// ErrNotRoot means that a user other than root requested the embedded containerd.
var ErrNotRoot = errors.New("the embedded containerd needs root")

// ErrRunning means that another daemon serves the same directories.
var ErrRunning = errors.New("the embedded containerd is already running")

// DefaultIdleGrace is how long a daemon runs that nothing needs.
const DefaultIdleGrace = 2 * time.Second

// warmTime is how long a daemon runs that nothing needs after Lease.KeepWarm.
const warmTime = time.Minute

// maxSocketPath is the maximum length, in bytes, of the path of containerd's socket.
const maxSocketPath = 104

// Options configure Serve and Ensure.
type Options struct {
	Dirs layout.Dirs
	// Log receives containerd's warnings and errors. If nil, they go to standard error.
	Log *slog.Logger
	// NoSync makes the daemon's database faster, but a power loss may corrupt it. It is for
	// machines that are thrown away. Only Serve uses it.
	NoSync bool
	// IdleGrace is how long the daemon runs when nothing needs it; 0 means DefaultIdleGrace. Only
	// Serve uses it.
	IdleGrace time.Duration
	// Args are the arguments with which Ensure runs this program so that it calls Serve. The
	// default is: containerd --root-dir ROOT --run-dir RUN.
	Args []string
	// Serves says that the process keeps pods for as long as the daemon runs. Ensure then replaces a daemon that runs
	// another file than this program's and has no other client; containers run on meanwhile. A daemon that it starts
	// stays in the service that this process is of; that of any other process is taken out of it.
	Serves bool
}

// checked returns the options with defaults and absolute paths, after creating the daemon's
// directories. It returns an error if the daemon could not start.
func (o Options) checked() (Options, error) {
	for _, p := range []*string{&o.Dirs.Root, &o.Dirs.Run} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return o, err
		}
		*p = abs
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
	if s := o.Dirs.Embedded().Socket(); len(s) > maxSocketPath {
		return o, fmt.Errorf(
			"socket path %s has %d bytes, more than the maximum of %d: use a shorter run directory",
			s, len(s), maxSocketPath)
	}
	if err := errors.Join(
		own.Mkdir(o.Dirs.Root, layout.ModePrivate), own.Mkdir(o.Dirs.Run, layout.ModePassable),
	); err != nil {
		return o, err
	}
	// The state directory is accessible to other users, because the root file systems of
	// user-namespaced containers are below it. Its contents have their own permissions.
	if err := os.MkdirAll(o.Dirs.Embedded().State(), layout.ModePassable); err != nil {
		return o, err
	}
	return o, os.MkdirAll(o.Dirs.Embedded().Data(), 0o700)
}

// ttrpcSocket returns the path of the socket to which shims publish events.
func ttrpcSocket(d layout.Dirs) string { return filepath.Join(d.Embedded().State(), "ttrpc.sock") }

// logFile returns the path of the file for the daemon's output.
func logFile(d layout.Dirs) string { return filepath.Join(d.Embedded().Data(), "containerd.log") }

// BundleDir returns the path of a task's bundle in the daemon's state. The file bootstrap.json in
// it has the shim's address.
func BundleDir(d layout.Dirs, namespace, id string) string {
	return filepath.Join(d.Embedded().State(), "io.containerd.runtime.v2.task", namespace, id)
}
