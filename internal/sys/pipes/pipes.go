// Package pipes manages the directories of the named pipes that commands in containers write their
// output to.
//
// A shim that opens such a pipe blocks until a process opens it for reading. If that process was a
// podrun that was killed, the shim would block for ever, and an old shim serves no other request
// meanwhile. So the next podrun opens the pipes that are left.
//
// The package does not create the pipes and does not read them. Begin reading at Pipes.
package pipes

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"podrun.io/podrun/internal/sys"
)

// Pipes manages the pipes of one process. The process's directory is locked as long as the process
// lives, which distinguishes it from the directories of killed processes. All methods are safe for
// concurrent use.
type Pipes struct {
	root string

	mu      sync.Mutex
	own     *sys.Lock // nil: no directory was needed yet
	adopted []*sys.Lock
	held    []*os.File
}

// New returns Pipes below the directory root. It creates nothing yet.
func New(root string) *Pipes { return &Pipes{root: root} }

// Dir returns the directory in which this process creates its pipes, and creates and locks the
// directory in the first call.
func (p *Pipes) Dir() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		if err := os.MkdirAll(p.root, 0o700); err != nil {
			return "", fmt.Errorf("making the directory of pipes: %w", err)
		}
		lock, err := sys.TryLockDir(filepath.Join(p.root, rand.Text()), 0o700)
		// Another process's Adopt may lock the directory just before this process does.
		for try := 0; errors.Is(err, sys.ErrLocked) && try < 100; try++ {
			lock, err = sys.TryLockDir(filepath.Join(p.root, rand.Text()), 0o700)
		}
		if err != nil {
			return "", fmt.Errorf("making a directory of pipes: %w", err)
		}
		p.own = lock
	}
	return p.own.Path(), nil
}

// Adopt opens the pipes that killed processes left, so that no shim blocks on them. A shim may open
// its pipe only later, so the pipes stay in place and open until Close.
func (p *Pipes) Adopt() error {
	entries, err := os.ReadDir(p.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing left-over pipes: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for _, e := range entries {
		dir := filepath.Join(p.root, e.Name())
		if !e.IsDir() || p.own != nil && dir == p.own.Path() {
			continue
		}
		lock, err := sys.TryLockDir(dir, 0o700)
		if errors.Is(err, sys.ErrLocked) {
			continue
		}
		if err == nil {
			p.adopted = append(p.adopted, lock)
			err = p.hold(dir)
		}
		if err != nil {
			all = append(all, fmt.Errorf("opening left-over pipes: %w", err))
		}
	}
	return errors.Join(all...)
}

// hold opens the pipes in dir that a shim writes to.
func (p *Pipes) hold(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeNamedPipe || strings.HasSuffix(path, "-stdin") {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			p.held = append(p.held, f)
		}
		return err
	})
}

// Close closes all pipes, releases all locks, and removes the adopted directories.
func (p *Pipes) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for _, f := range p.held {
		all = append(all, f.Close())
	}
	for _, lock := range p.adopted {
		all = append(all, os.RemoveAll(lock.Path()))
		lock.Unlock()
	}
	if p.own != nil {
		_ = os.Remove(p.own.Path()) // if it is not empty, the next process adopts it
		p.own.Unlock()
	}
	p.held, p.adopted, p.own = nil, nil, nil
	return errors.Join(all...)
}
