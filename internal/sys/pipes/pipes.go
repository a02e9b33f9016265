// Package pipes keeps the directories of the named pipes that commands in containers write to. A shim that opens
// such a pipe waits until somebody opens it to read; when that was a podrun that has been killed, it would wait for ever,
// and an old one lets nobody else ask anything meanwhile. It does not make pipes and does not read them.
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

// Pipes are one process's. Its directory is locked as long as it lives, which tells it from those of processes that
// were killed.
type Pipes struct {
	root string

	mu      sync.Mutex
	own     *sys.Lock // nil: none was needed
	adopted []*sys.Lock
	held    []*os.File
}

// New returns the pipes below root; it makes nothing yet.
func New(root string) *Pipes { return &Pipes{root: root} }

// Dir is where this process's pipes are to be made.
func (p *Pipes) Dir() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		if err := os.MkdirAll(p.root, 0o700); err != nil {
			return "", fmt.Errorf("making the directory of pipes: %w", err)
		}
		lock, err := sys.TryLockDir(filepath.Join(p.root, rand.Text()), 0o700)
		// Another process that looks for what is left may lock it just before it is locked here.
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

// Adopt opens what processes that were killed left, so that no shim waits for them. A shim may only come to open it: so
// it stays there, and open, until Close.
func (p *Pipes) Adopt() error {
	entries, err := os.ReadDir(p.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for pipes that are left: %w", err)
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
			all = append(all, fmt.Errorf("opening pipes that are left: %w", err))
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

// Close lets go of everything, and removes what was adopted.
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
		_ = os.Remove(p.own.Path()) // with something in it, it is the next one's to adopt
		p.own.Unlock()
	}
	p.held, p.adopted, p.own = nil, nil, nil
	return errors.Join(all...)
}
