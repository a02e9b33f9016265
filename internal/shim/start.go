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

// The files in a shim's home: where it is reached, and what went wrong. Shims know the first under another name
// and would remove their socket when they end; by then it may be the next one's.
const (
	socketFile = "socket"
	logFile    = "log"
)

// Nursery starts shims and buries them. They live on when this process ends.
type Nursery struct {
	mu       sync.Mutex
	children map[int]bool
}

// NewNursery makes a Nursery.
func NewNursery() *Nursery { return &Nursery{children: map[int]bool{}} }

// Start starts a shim for a group like the model, named after the container id, unless there is one that can be
// connected to. It runs in the directory home, which is made. Its socket can be connected to at once.
func (n *Nursery) Start(m *Model, home, group, id string) error {
	socket := m.Socket(group)
	if err := furnish(home, socket); err != nil {
		return err
	}
	listener, err := listen(socket)
	if err != nil {
		return fmt.Errorf("making the socket of a shim: %w", err)
	}
	if listener == nil {
		return nil // of a start that was cut off
	}
	defer listener.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	// Its own session: neither a terminal's signals nor its end are meant for it.
	p, err := os.StartProcess(m.program, m.renamed(m.args, id), &os.ProcAttr{
		Dir: home, Env: m.renamed(m.env, id), Files: []*os.File{null, null, null, listener}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = os.Remove(socket)
		return fmt.Errorf("starting a shim: %w", err)
	}
	pid := p.Pid
	_ = p.Release() // Reap hears of its end
	n.mu.Lock()
	n.children[pid] = true
	n.mu.Unlock()
	// The kernel may not let it be lowered; what a shim of containerd's has is what counts.
	_ = os.WriteFile(proc(pid, "oom_score_adj"), []byte(m.oom), 0)
	return nil
}

// Reap buries the shims that have ended.
func (n *Nursery) Reap() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for pid := range n.children {
		if ended, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); ended == pid || err != nil && !errors.Is(err, syscall.EINTR) {
			delete(n.children, pid)
		}
	}
}

// SocketOf is where the shim is reached that was started last in the directory home; "" if none was.
func SocketOf(home string) string {
	path, err := os.ReadFile(filepath.Join(home, socketFile))
	if err != nil || len(filepath.Base(string(path))) != 2*sha256.Size {
		return "" // or it was cut off while it was written
	}
	return string(path)
}

func furnish(home, socket string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("making a shim's directory: %w", err)
	}
	if SocketOf(home) != socket {
		if err := os.WriteFile(filepath.Join(home, socketFile), []byte(socket), 0o600); err != nil {
			return fmt.Errorf("making a shim's directory: %w", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(home, logFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("making a shim's log: %w", err)
	}
	return f.Close()
}

// listen makes a socket, in place of one that nobody listens at. It returns nil if somebody does.
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
