// Package filled writes the files of a volume that podrun fills, such as a ConfigMap's, so that a reader
// sees files of one content only, and compares them with a content. It does not know what the files
// are made from.
//
// Begin reading at Write.
package filled

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// A filled volume has the same layout as the kubelet's, because programs know and watch it: the
// files are in a directory of their own, ..data is a symbolic link to that directory, and each name
// in the volume is a link through ..data. New content is written to a new directory, and one rename
// of ..data switches to it.
const (
	dataLink  = "..data"
	freshLink = "..data_tmp"
	// own is the prefix of the names that belong to this layout; no key may begin with it.
	own = ".."
)

// Files are the files of a volume, by their cleaned path in it.
type Files map[string]File

// File is a file of a volume.
type File struct {
	Data []byte
	Mode uint32
}

// IsWritten reports whether a volume was filled before.
func IsWritten(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, dataLink))
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// Write makes files the content of a volume's directory, unless they already are. They belong to group
// unless it is nil. Write may be interrupted at any point: the next call removes what it leaves behind.
func Write(dir string, files Files, group *int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if group != nil {
		if err := giveTo(root, *group); err != nil {
			return err
		}
	}
	current, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !isOwnDir(current) || !shows(root, current, files, group, nil) {
		fresh := fmt.Sprintf("%s%s.%09d", own, time.Now().UTC().Format("2006_01_02_15_04_05"), time.Now().Nanosecond())
		if err := writeFiles(root, fresh, files, group); err != nil {
			return errors.Join(err, root.RemoveAll(fresh)) // trusted: containers have it read-only
		}
		if err := swap(root, fresh); err != nil {
			return err
		}
		current = fresh
	}
	if err := link(root, files); err != nil {
		return err
	}
	return tidy(root, current, files)
}

// Shows reports whether a directory that was written has exactly these files. Files at the paths of others
// may have any content, or be missing.
func Shows(dir string, files Files, group *int64, others map[string]bool) (bool, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	current, err := root.Readlink(dataLink)
	return err == nil && isOwnDir(current) && shows(root, current, files, group, others), err
}

func isOwnDir(name string) bool {
	return strings.HasPrefix(name, own) && !strings.Contains(name, "/") &&
		name != ".." && name != dataLink && name != freshLink
}

// shows reports whether the directory contains exactly these files, with their modes, beside others.
func shows(root *os.Root, dir string, files Files, group *int64, others map[string]bool) bool {
	there := 0
	same := true
	err := fs.WalkDir(root.FS(), dir, func(at string, d fs.DirEntry, err error) error { // trusted: the same
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(at, dir+"/")
		if others[name] {
			return nil
		}
		there++
		want, ok := files[name]
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !ok ||
			!info.Mode().IsRegular() ||
			info.Mode().Perm() != fileMode(want, group) ||
			info.Size() != int64(len(want.Data)) {
			same = false
			return fs.SkipAll
		}
		have, err := sys.ReadRegular(root.Name(), at, sys.NoLinks, len(want.Data))
		if err == nil && !bytes.Equal(have, want.Data) {
			same = false
		}
		return err
	})
	return err == nil && same && there == len(files)
}

// fileMode returns a file's mode; if the volume belongs to a group, the group may read the file.
func fileMode(f File, group *int64) fs.FileMode {
	mode := fs.FileMode(f.Mode)
	if group != nil {
		mode |= 0o440
	}
	return mode
}

func writeFiles(root *os.Root, dir string, files Files, group *int64) error {
	if err := makeFor(root, dir, group); err != nil {
		return err
	}
	for name, f := range files {
		at := path.Join(dir, name)
		if at == dir || !strings.HasPrefix(at, dir+"/") {
			return fmt.Errorf("path %q leads out of the volume", name)
		}
		for i := len(dir) + 1; i < len(at); i++ {
			if at[i] == '/' {
				if err := makeFor(root, at[:i], group); err != nil {
					return err
				}
			}
		}
		if err := writeFile(root, at, f, group); err != nil {
			return err
		}
	}
	return nil
}

// makeFor creates a directory. If there is a group, the directory belongs to it, and what is
// created in it belongs to the group too.
func makeFor(root *os.Root, dir string, group *int64) error {
	if err := root.Mkdir(dir, layout.ModeContent); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	mode := layout.ModeContent
	if group != nil {
		mode |= fs.ModeSetgid
		if err := root.Lchown(dir, -1, int(*group)); err != nil {
			return err
		}
	}
	return root.Chmod(dir, mode)
}

// giveTo gives the volume's own directory to a group, to which then belongs what is created in it, as the kubelet does
// (pkg/volume, SetVolumeOwnership).
func giveTo(root *os.Root, group int64) error {
	info, err := root.Lstat(".")
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Gid) == group && info.Mode()&fs.ModeSetgid != 0 {
		return nil
	}
	if err := root.Lchown(".", -1, int(group)); err != nil {
		return err
	}
	return root.Chmod(".", info.Mode()|fs.ModeSetgid)
}

func writeFile(root *os.Root, at string, f File, group *int64) error {
	file, err := root.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(f.Data); err != nil {
		return err
	}
	if group != nil {
		if err := file.Chown(-1, int(*group)); err != nil {
			return err
		}
	}
	return file.Chmod(fileMode(f, group))
}

// swap makes dir the current content.
func swap(root *os.Root, dir string) error {
	if err := root.Remove(freshLink); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := root.Symlink(dir, freshLink); err != nil {
		return err
	}
	return root.Rename(freshLink, dataLink)
}

// link creates a link for the first element of each file's path.
func link(root *os.Root, files Files) error {
	for name := range files {
		top, _, _ := strings.Cut(path.Clean(name), "/")
		target := dataLink + "/" + top
		if have, err := root.Readlink(top); err == nil && have == target {
			continue
		}
		if err := root.RemoveAll(top); err != nil { // trusted: the same
			return err
		}
		if err := root.Symlink(target, top); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes entries that are neither part of the layout nor the first element of a file's path.
func tidy(root *os.Root, current string, files Files) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	wanted := []string{dataLink, current}
	for name := range files {
		top, _, _ := strings.Cut(path.Clean(name), "/")
		wanted = append(wanted, top)
	}
	for _, name := range names {
		if slices.Contains(wanted, name) {
			continue
		}
		if err := root.RemoveAll(name); err != nil { // trusted: the same
			return err
		}
	}
	return nil
}
