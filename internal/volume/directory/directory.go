// Package directory makes the directories of volumes, and opens those of claims.
//
// An administrator may mount the file system of another machine, or a disk, on the directory of all claims, of those of
// a namespace or of a claim. Whoever serves or has prepared it may put a link in the place of any directory in it, at
// any time. So below <root>/claims everything is opened in one way, without links, and used by its descriptor.
//
// Begin reading at OpenClaim.
package directory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// OpenClaim opens the directory of a claim with these flags; unix.O_PATH is enough to mount it. The error is
// fs.ErrNotExist if there is none.
func OpenClaim(dirs layout.Dirs, claim pod.Key, flags int) (*os.File, error) {
	return open(dirs, filepath.Join(claim.Namespace, claim.Name), flags)
}

// OpenClaims is OpenClaim for the directory of all claims of a namespace; "." is that of all namespaces.
func OpenClaims(dirs layout.Dirs, namespace string, flags int) (*os.File, error) {
	return open(dirs, namespace, flags)
}

func open(dirs layout.Dirs, within string, flags int) (*os.File, error) {
	all, err := os.OpenFile(dirs.Claims(), unix.O_PATH|unix.O_DIRECTORY, 0) // trusted: in podrun's own directory
	if err != nil {
		return nil, err
	}
	defer all.Close()
	dir, err := sys.OpenBeneath(all, within, sys.NoLinks, flags|unix.O_DIRECTORY)
	return dir, explained(err)
}

// explained says what is wrong with a directory that somebody has replaced.
func explained(err error) error {
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%w; podrun follows no symbolic link below the directory of claims: have a directory there, "+
			"or a mount", err)
	}
	return err
}

// HasClaim reports whether the directory of a claim exists. With an error something else is there. It waits for a file
// system that does not answer.
func HasClaim(dirs layout.Dirs, claim pod.Key) (bool, error) {
	dir, err := OpenClaim(dirs, claim, unix.O_PATH)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	_, err = dir.Stat() // to open it as a path asks no server
	return true, err
}

// HasData reports whether there is something in the directory of a claim; of what is no directory, an error. It waits
// for a file system that does not answer.
func HasData(dirs layout.Dirs, claim pod.Key) (bool, error) {
	dir, err := OpenClaim(dirs, claim, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return len(names) > 0, err
}

// MakeClaim creates the directory of a claim that has none. There is one call at a time for a namespace.
func MakeClaim(dirs layout.Dirs, claim pod.Key) error {
	if err := os.MkdirAll(dirs.Claims(), layout.ModePrivate); err != nil {
		return err
	}
	in, err := sys.MkdirBeneath(dirs.Claims(), layout.ModePrivate, claim.Namespace)
	if err != nil {
		return explained(err)
	}
	defer in.Close()
	return Make(in, claim.Name)
}

// Make creates a directory that every user may write to. The directory gets its name last: so one with that name has
// its mode, and a mode that its users set later is kept. There is one call at a time for the directories of one parent.
func Make(in *os.File, name string) error {
	const fresh = ".new"
	err := unix.Mkdirat(int(in.Fd()), fresh, uint32(layout.ModePrivate))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: filepath.Join(in.Name(), fresh), Err: err}
	}
	dir, err := sys.OpenBeneath(in, fresh, sys.NoLinks, os.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w; podrun makes a directory of this name: remove what is there", err)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Chmod(layout.ModeVolume); err != nil { // separately, because the umask applies to Mkdirat
		return err
	}
	if err := unix.Renameat(int(in.Fd()), fresh, int(in.Fd()), name); err != nil {
		return &os.LinkError{Op: "rename", Old: dir.Name(), New: filepath.Join(in.Name(), name), Err: err}
	}
	return nil
}
