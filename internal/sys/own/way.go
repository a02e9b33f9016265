package own

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the number of symbolic links that the kernel follows in a path.
const maxLinks = 40

// LooseOnWay returns a LooseError for each directory and link on the way from / to path by which
// other users could redirect podrun to another file, in path order: directories in which they may
// replace files of root, and directories and links that they own. It follows symbolic links, and
// checks path itself only if it is a link. It stops at a component that cannot be read; reading the
// file reports that error.
func LooseOnWay(path string) []error {
	var all []error
	_, _ = walk(path, func(at string, info fs.FileInfo) error {
		if err := Loose(at, info, false); err != nil {
			all = append(all, err)
		}
		return nil
	}, nil)
	return all
}

// walk calls visit for each directory and link on the way from / to path, for path itself only if
// it is a link, and returns path without links. It stops at the first error. If missing is not nil,
// it is called for what does not exist, unless only a link names that, and may create it.
// While nobody else may change what visit accepts, the result does not change either.
func walk(path string, visit func(at string, info fs.FileInfo) error, missing func(at string) error) (string, error) {
	at, links := "/", 0
	info, err := os.Lstat(at)
	if err == nil {
		err = visit(at, info)
	}
	todo := components(path)
	named := len(todo) // how many of them are left that no link names
	for err == nil && len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		linked := len(todo) >= named
		named = min(named, len(todo))
		if name == ".." {
			at = filepath.Dir(at) // correct because at contains no symbolic link
			continue
		}
		next := filepath.Join(at, name)
		info, err = os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) && missing != nil && !linked {
			if err = missing(next); err == nil {
				info, err = os.Lstat(next)
			}
		}
		switch {
		case err != nil:
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			if err = visit(next, info); err == nil {
				target, err = os.Readlink(next)
			}
			if links++; links > maxLinks {
				err = &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			todo = append(components(target), todo...)
		case len(todo) > 0 && !info.IsDir():
			err = &fs.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
		default:
			at = next
			if len(todo) > 0 {
				err = visit(next, info)
			}
		}
	}
	return at, err
}

// components returns the names in a path, without those that mean nothing.
func components(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}
