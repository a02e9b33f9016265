package shim

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// The files in a shim's home directory: the path of its socket, and its error log. The first one
// does not have the name that shims know, because they would remove their socket when they end; by
// then it may be their successor's.
const (
	socketFile = "socket"
	logFile    = "log"
)

// Nursery starts shims and reaps them. The shims outlive this process. Its methods may be called
// concurrently, but Start only for different groups.
type Nursery struct {
	mu       sync.Mutex
	children map[int]bool
}

// NewNursery returns a Nursery without shims.
func NewNursery() *Nursery { return &Nursery{children: map[int]bool{}} }

// Start starts a shim for a group, with the model's arguments and environment in which the ID is
// replaced by id, a container's. It does nothing if a shim already listens on the group's socket.
// The shim runs in the directory home, which Start creates. When Start returns, the socket accepts
// connections.
func (n *Nursery) Start(m *Model, home, group, id string) error {
	socket := m.Socket(group)
	if err := furnish(home, socket); err != nil {
		return err
	}
	listener, err := listen(socket)
	if err != nil {
		return fmt.Errorf("creating the socket of a shim: %w", err)
	}
	if listener == nil {
		return nil // an interrupted start has started the shim
	}
	defer listener.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	// A session of its own: the shim must not get the terminal's signals or its hang-up.
	p, err := os.StartProcess(m.program, m.renamed(m.args, id), &os.ProcAttr{
		Dir:   home,
		Env:   m.renamed(m.env, id),
		Files: []*os.File{null, null, null, listener},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = os.Remove(socket)
		return fmt.Errorf("starting a shim: %w", err)
	}
	pid := p.Pid
	_ = p.Release() // Reap waits for it
	n.mu.Lock()
	n.children[pid] = true
	n.mu.Unlock()
	// The shim gets the value of containerd's shims. The kernel may refuse to lower it; that is
	// ignored.
	_ = os.WriteFile(proc(pid, "oom_score_adj"), []byte(m.oom), 0)
	return nil
}

// Reap reaps the shims that have ended. It does not wait.
func (n *Nursery) Reap() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for pid := range n.children {
		if ended, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); ended == pid ||
			err != nil && !errors.Is(err, syscall.EINTR) {
			delete(n.children, pid)
		}
	}
}

// SocketOf returns the path of the socket of the shim that was started last in the directory home;
// "" if none was.
func SocketOf(home string) string {
	path, err := os.ReadFile(filepath.Join(home, socketFile))
	if err != nil || len(filepath.Base(string(path))) != 2*sha256.Size {
		return "" // no file, or its writing was interrupted
	}
	return string(path)
}

func furnish(home, socket string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("creating a shim's directory: %w", err)
	}
	if SocketOf(home) != socket {
		if err := os.WriteFile(filepath.Join(home, socketFile), []byte(socket), 0o600); err != nil {
			return fmt.Errorf("recording a shim's socket: %w", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(home, logFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("creating a shim's log: %w", err)
	}
	return f.Close()
}

// listen creates a socket, and removes an old one that no process listens on. It returns nil if a
// process listens on it.
func listen(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if conn, err := net.Dial("unix", path); err == nil {
		return nil, conn.Close()
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	return l.File()
}
