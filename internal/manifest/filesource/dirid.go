package filesource

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"podrun.io/podrun/internal/manifest"
)

// dirID keeps on disk which directory a path was when manifests were in it. So an empty directory that is
// another one, as that on which a disk should be mounted, is not taken for one that was emptied while podrun
// was down.
type dirID struct {
	file string // empty: nothing is kept
	kept uint64 // the inode, or ofFile; 0: not known
	// readOnly: nothing is written.
	readOnly bool
}

// ofFile stands for the inode where manifests are read from a file: no directory has it.
const ofFile = math.MaxUint64

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

// keep records what manifests are read from. It is not synced to the disk: no start waits for it.
func (p *dirID) keep(used uint64) error {
	if p.file == "" || p.readOnly || used == p.kept {
		return nil
	}
	p.kept = used // whatever comes of it, it is not tried again and again
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

// pathKind is what a path of manifests is.
type pathKind string

const (
	kindDir  pathKind = "a directory"
	kindFile pathKind = "a file"
)

// sameKind refuses a file in the place of a directory that manifests were in, and a directory in the place of a file,
// unless there is a manifest that can be used: somebody moved the path away, or what should be mounted there is not, and
// container engines make a directory where what they are to mount is missing.
func (s *scanner) sameKind(info fs.FileInfo, now time.Time) error {
	kind := kindFile
	if info.IsDir() {
		kind = kindDir
	}
	if s.kind == "" || s.kind == kind || len(s.files) == 0 {
		return nil
	}
	afresh := *s
	afresh.kind, afresh.dir, afresh.before, afresh.begun, afresh.files = "", nil, 0, false, map[string]*entry{}
	afresh.scan(now)
	if afresh.err == nil {
		for _, e := range afresh.files {
			if e.good {
				return nil
			}
		}
	}
	return fmt.Errorf("%s was %s and is %s now, without a manifest that can be used", s.path, s.kind, kind)
}

// used is what manifests are read from; 0 if there are none, or if they cannot be read.
func (s *scanner) used() uint64 {
	switch {
	case s.err != nil || len(s.files) == 0:
		return 0
	case s.kind == kindFile:
		return ofFile
	}
	return inode(s.dir)
}

// inode tells directories apart over a reboot, when devices may have other numbers.
func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
