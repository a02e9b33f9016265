package file

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
	"podrun.io/podrun/internal/sys"
)

// dirID saves on disk the identity of the directory that manifests were read from. After a restart,
// an empty directory that is not the same one, such as the mount point of a disk that is not
// mounted, is then not taken for a directory whose manifests were removed while podrun was down.
type dirID struct {
	file string // empty: nothing is saved
	kept uint64 // the inode, or ofFile; 0: not known
	// readOnly is set if the file is never written.
	readOnly bool
}

// ofFile replaces the inode if the manifests are read from a file. No directory has this inode.
const ofFile = math.MaxUint64

func newDirID(o Options, path string) dirID {
	if o.IdentityDir == "" {
		return dirID{}
	}
	return dirID{
		file:     filepath.Join(o.IdentityDir, manifest.Digest([]byte(path))+".place"),
		readOnly: o.IdentityReadOnly,
	}
}

// read reads the saved identity. A file that a loss of power left incomplete counts as no identity.
func (p *dirID) read() error {
	if p.file == "" {
		return nil
	}
	text, err := os.ReadFile(p.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the saved identity of the manifest directory: %w", err)
	}
	p.kept, _ = strconv.ParseUint(string(text), 10, 64)
	return nil
}

// keep saves the identity of what manifests are read from, 0 if there are none. The file is not synced to the disk, so
// that no pod start waits for the disk.
func (p *dirID) keep(used uint64) error {
	if p.file == "" || p.readOnly || used == p.kept {
		return nil
	}
	p.kept = used // also if writing fails, so that each scan does not try again
	err := os.MkdirAll(filepath.Dir(p.file), 0o700)
	if err == nil {
		err = sys.WriteFile(p.file, []byte(strconv.FormatUint(p.kept, 10)), 0o600)
	}
	if err != nil {
		return fmt.Errorf("saving the identity of the manifest directory: %w", err)
	}
	return nil
}

// wayOut says what to do if a path without manifests is meant.
const wayOut = "its pods run on; if they are to go, put a manifest there that says so: " +
	`{"apiVersion": "v1", "kind": "List", "items": []}`

// another reports whether info is not the directory that manifests were read from before.
func (s *scanner) another(info fs.FileInfo) bool {
	if s.dir == nil {
		return s.before != 0 && s.before != inode(info)
	}
	return !os.SameFile(s.dir, info) && len(s.files) > 0
}

// pathKind is the kind of a manifest path, as error messages name it.
type pathKind string

const (
	kindDir  pathKind = "a directory"
	kindFile pathKind = "a file"
)

// sameKind returns an error if a directory of manifests has become a file, or a file a directory,
// and there is no manifest in it that can be used. The path was then moved away, or is not mounted:
// container engines create a directory where the source of a bind mount is missing.
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
	return fmt.Errorf("%s was %s and is %s now, without a manifest that can be used; %s",
		s.path, s.kind, kind, wayOut)
}

// used returns the identity of what manifests are read from: an inode, or ofFile; 0 if there are no
// manifests or they cannot be read.
func (s *scanner) used() uint64 {
	switch {
	case s.err != nil || len(s.files) == 0:
		return 0
	case s.kind == kindFile:
		return ofFile
	}
	return inode(s.dir)
}

// emptied reports that the directory has no manifests any more, and that this is so on purpose.
func (s *scanner) emptied() bool { return s.err == nil && s.kind == kindDir && len(s.files) == 0 }

// inode returns the inode number, the identity of a directory. The device number is no part of it
// because it may change with a reboot.
func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
