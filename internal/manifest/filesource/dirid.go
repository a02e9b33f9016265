package filesource

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"podrun.io/podrun/internal/manifest"
)

// dirID keeps on disk which directory a path was when manifests were in it. So an empty directory that is
// another one, as that on which a disk should be mounted, is not taken for one that was emptied while podrun
// was down.
type dirID struct {
	file string // empty: nothing is kept
	kept uint64 // the inode; 0: not known
	// readOnly: nothing is written.
	readOnly bool
}

func newDirID(o Options, path string) dirID {
	if o.IdentityDir == "" {
		return dirID{}
	}
	return dirID{file: filepath.Join(o.IdentityDir, manifest.Digest([]byte(path))+".place"), readOnly: o.IdentityReadOnly}
}

// read finds out what is kept. What a loss of power left of it is nothing.
func (p *dirID) read() error {
	if p.file == "" {
		return nil
	}
	text, err := os.ReadFile(p.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading which directory manifests were in: %w", err)
	}
	p.kept, _ = strconv.ParseUint(string(text), 10, 64)
	return nil
}

// keep notes that manifests are in this directory. It is not synced to the disk: no start waits for it.
func (p *dirID) keep(dir fs.FileInfo) error {
	if p.file == "" || p.readOnly || inode(dir) == p.kept {
		return nil
	}
	p.kept = inode(dir) // whatever comes of it, it is not tried again and again
	next := filepath.Join(filepath.Dir(p.file), "."+filepath.Base(p.file))
	err := os.MkdirAll(filepath.Dir(p.file), 0o700)
	if err == nil {
		err = os.WriteFile(next, []byte(strconv.FormatUint(p.kept, 10)), 0o600)
	}
	if err == nil {
		err = os.Rename(next, p.file)
	}
	if err != nil {
		return fmt.Errorf("noting which directory manifests are in: %w", err)
	}
	return nil
}

// another reports that this is not the directory that the manifests were in before.
func (s *scanner) another(info fs.FileInfo) bool {
	if s.dir == nil {
		return s.before != 0 && s.before != inode(info)
	}
	return !os.SameFile(s.dir, info) && len(s.files) > 0
}

// used is the directory that manifests are in; nil if there are none, or if they cannot be read.
func (s *scanner) used() fs.FileInfo {
	if s.err != nil || len(s.files) == 0 {
		return nil
	}
	return s.dir
}

// inode tells directories apart over a reboot, when devices may have other numbers.
func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
