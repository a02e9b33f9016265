package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// WriteAtomic replaces the file that path leads to. It writes a temporary file in the same directory
// and renames it, so that readers never see a partial file. It follows symbolic links. A path that
// is not a regular file, such as /dev/stdout or a pipe, is written to directly. A link or a pipe that another user
// has put into a directory such as /tmp is an error, whatever the kernel's settings are.
func WriteAtomic(path string, write func(io.Writer) error) error {
	path, at, err := resolve(path)
	if err != nil {
		return err
	}
	mode, owner := fs.FileMode(0o644), (*syscall.Stat_t)(nil)
	if at != nil {
		defer at.Close()
		info, err := at.Stat()
		if err != nil {
			return err
		}
		others := isOthers(path, info)
		switch {
		case !info.Mode().IsRegular() && others:
			return &fs.PathError{Op: "write", Path: path, Err: errOthers}
		case !info.Mode().IsRegular():
			f, err := os.OpenFile(self(at), os.O_WRONLY, 0) // trusted: what was looked at, the user's
			if err != nil {
				return err
			}
			return errors.Join(write(f), f.Close())
		case !others:
			mode = info.Mode().Perm()
			owner, _ = info.Sys().(*syscall.Stat_t)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if owner != nil {
		_ = f.Chown(int(owner.Uid), int(owner.Gid)) // fails unless the user is root
	}
	if err := errors.Join(write(f), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// errOthers is that somebody may have put something there to have it written to, or elsewhere.
var errOthers = errors.New("belongs to another user, and everybody can put files there")

// self returns the path of an open file that leads to it and nothing else.
func self(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// resolve follows the symbolic links at path. It returns where they lead and what is there, as a path; nil if there is
// nothing. A link of another user's in a directory where everybody may put one is an error.
func resolve(path string) (string, *os.File, error) {
	for range 40 { // the kernel follows at most 40 links
		f, info, err := openPath(path, unix.O_NOFOLLOW)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil, nil
		}
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			return path, f, err
		}
		to := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(f.Fd()), "", to)
		target := string(to[:max(n, 0)])
		var on unix.Statfs_t
		err = errors.Join(err, unix.Fstatfs(int(f.Fd()), &on), f.Close())
		switch {
		case err != nil:
			return "", nil, err
		case on.Type == unix.PROC_SUPER_MAGIC: // it leads to an open file of the process's
			f, info, err := openPath(path, 0)
			if err == nil && info.Mode().IsRegular() {
				path = target
			}
			return path, f, err
		case isOthers(path, info):
			return "", nil, &fs.PathError{Op: "follow", Path: path, Err: errOthers}
		case !filepath.IsAbs(target):
			target = filepath.Dir(path) + "/" + target // not cleaned, because links change the meaning of ".."
		}
		path = target
	}
	return "", nil, &fs.PathError{Op: "follow", Path: path, Err: unix.ELOOP}
}

// openPath opens what is at a path only as a path.
func openPath(path string, flags int) (*os.File, fs.FileInfo, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0) // trusted: the user's, and only as a path
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// isOthers reports whether a file is another user's in a directory where everybody may put one, such as /tmp.
func isOthers(path string, info fs.FileInfo) bool {
	in, err := os.Stat(filepath.Dir(path))
	of, is := info.Sys().(*syscall.Stat_t)
	if err != nil || !is {
		return true
	}
	return in.Mode()&fs.ModeSticky != 0 && in.Mode().Perm()&0o022 != 0 && int(of.Uid) != os.Geteuid()
}
