// Package testcontainerd runs a containerd for tests and the benchmark: a stock release or Debian's
// package, each with its own shim, in private directories and without the CRI plugins.
//
// It is not part of podrun; the embedded containerd is another package. It cannot stop containers
// gracefully, which is up to its users, but Stop leaves none of their processes and mounts behind.
// Begin reading at Start.
package testcontainerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// The kinds of containerd.
const (
	// Stock is the release whose client podrun uses.
	Stock = "stock"
	// Debian is Debian's package.
	Debian = "debian"
)

// startTimeout is how long a containerd may take to accept connections after its start.
const startTimeout = 30 * time.Second

// Server is a running containerd.
type Server struct {
	// Address is the path of its socket.
	Address string
	// PID is its process ID.
	PID int

	dir  string
	bin  string
	cmd  *exec.Cmd
	done chan struct{}
}

// bins caches the directories that Bin has returned, because reading Debian's package lists takes
// seconds.
var bins = struct {
	sync.Mutex
	of map[string]string
}{of: map[string]string{}}

// Bin returns the directory with the binaries of a kind, and downloads or builds them if they are
// missing. The working directory must be in the project, or PODRUN_CONTAINERD_BIN be the directory.
func Bin(ctx context.Context, kind string) (string, error) {
	bins.Lock()
	defer bins.Unlock()
	if dir, known := bins.of[kind]; known {
		return dir, nil
	}
	dir, err := findBin(ctx, kind)
	if err == nil {
		bins.of[kind] = dir
	}
	return dir, err
}

func findBin(ctx context.Context, kind string) (string, error) {
	if dir := os.Getenv("PODRUN_CONTAINERD_BIN"); dir != "" {
		return dir, nil // of a machine that has one installed, and no Go
	}
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the project: %w", err)
	}
	script := filepath.Join(filepath.Dir(strings.TrimSpace(string(gomod))), "scripts", "containerd.sh")
	cmd := exec.CommandContext(ctx, script, kind)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("providing the %s containerd: %w", kind, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Start starts the containerd in the directory bin, with its data and log in dir, and returns when
// it accepts connections. The path dir must be short: socket paths have at most 107 bytes.
func Start(ctx context.Context, bin, dir string) (*Server, error) {
	s := &Server{Address: filepath.Join(dir, "containerd.sock"), dir: dir, bin: bin}
	if err := os.WriteFile(s.path("config.toml"), []byte(s.config()), 0o600); err != nil {
		return nil, fmt.Errorf("writing containerd's configuration: %w", err)
	}
	return s, s.Restart(ctx)
}

// Restart starts the containerd again, after Kill.
func (s *Server) Restart(ctx context.Context) error {
	log, err := os.OpenFile(s.path("containerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening containerd's log: %w", err)
	}
	defer log.Close()
	s.cmd = exec.Command(filepath.Join(s.bin, "containerd"), "--config", s.path("config.toml"))
	s.cmd.Stdout, s.cmd.Stderr = log, log
	// It must find its own shim: it cannot talk to a shim of another version.
	s.cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	// A group of its own, so that it does not get the signals for the terminal's foreground group.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting containerd: %w", err)
	}
	s.PID, s.done = s.cmd.Process.Pid, make(chan struct{})
	go func(cmd *exec.Cmd, done chan<- struct{}) {
		_ = cmd.Wait() // it was stopped, or its log has the reason
		close(done)
	}(s.cmd, s.done)
	return s.wait(ctx)
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// config returns the configuration in format version 2, which every containerd since 1.3 reads. It
// disables plugins that tests do not use and that would work outside dir.
func (s *Server) config() string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
]
[grpc]
  address = %q
`, s.path("root"), s.path("state"), s.Address)
}

// wait returns when the socket accepts connections.
func (s *Server) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.Address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.done:
			log, _ := os.ReadFile(s.path("containerd.log"))
			return fmt.Errorf("containerd ended:\n%s", log)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("containerd does not answer: %w", err), s.Stop())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill kills the containerd and leaves its containers running.
func (s *Server) Kill() error {
	err := s.cmd.Process.Kill()
	<-s.done
	return err
}

// Stop stops the containerd, kills all shims of it that are left, with their containers, and
// detaches its mounts. It does not remove the directory.
func (s *Server) Stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		err = errors.Join(err, s.cmd.Process.Kill())
		<-s.done
	}
	return errors.Join(err, s.killShims(), s.removeTraces(), s.unmount())
}

// removeTraces removes what killed shims leave outside the server's directory: their sockets, and
// the cgroups of containers without a cgroup path of their own.
func (s *Server) removeTraces() error {
	bundles, err := filepath.Glob(s.path("state/io.containerd.runtime.v2.task/*/*"))
	if err != nil {
		return err
	}
	namespaces, err := filepath.Glob(s.path("state/io.containerd.runtime.v2.task/*"))
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		RemoveRunc(filepath.Base(namespace))
	}
	for _, bundle := range bundles {
		data, _ := os.ReadFile(filepath.Join(bundle, "bootstrap.json"))
		if i := strings.Index(string(data), "unix://"); i >= 0 {
			socket, _, _ := strings.Cut(string(data[i+len("unix://"):]), `"`)
			_ = os.Remove(socket)
		}
		data, _ = os.ReadFile(filepath.Join(bundle, "address"))
		_ = os.Remove(strings.TrimPrefix(string(data), "unix://"))
		name := filepath.Join(filepath.Base(filepath.Dir(bundle)), filepath.Base(bundle))
		for _, pattern := range []string{"/sys/fs/cgroup/*/" + name, "/sys/fs/cgroup/" + name} {
			groups, _ := filepath.Glob(pattern)
			for _, group := range groups {
				removeCgroup(group)
			}
		}
	}
	return nil
}

// RemoveRunc removes runc's default directory for a namespace if it is empty. A containerd creates
// it when it cleans up after a shim that was killed before it recorded its runc root.
func RemoveRunc(namespace string) {
	for _, dir := range []string{"/run/containerd/runc/" + namespace, "/run/containerd/runc", "/run/containerd"} {
		_ = os.Remove(dir)
	}
}

// removeCgroup removes a cgroup when its last process has ended, and its parent if that is empty.
func removeCgroup(dir string) {
	for range 100 {
		if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			_ = os.Remove(filepath.Dir(dir))
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// killShims kills the shims of this containerd, which have its address on their command line, and
// their containers.
func (s *Server) killShims() error {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range procs {
		data, err := os.ReadFile(file)
		args := strings.Split(string(data), "\x00")
		if err != nil || !slices.Contains(args, s.Address) || !strings.Contains(args[0], "containerd-shim") {
			continue
		}
		var shim int
		if _, err := fmt.Sscanf(file, "/proc/%d/cmdline", &shim); err != nil {
			return err
		}
		for _, pid := range append(children(shim), shim) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("killing process %d: %w", pid, err)
			}
		}
	}
	return nil
}

// children returns the processes whose parent is pid.
func children(pid int) []int {
	var out []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(data)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// unmount detaches every mount below the server's directory, the innermost first.
func (s *Server) unmount() error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(s.dir))
	if err != nil {
		return fmt.Errorf("listing mounts: %w", err)
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}
