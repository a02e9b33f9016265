package volume

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
	"time"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

// A filled volume looks as the kubelet's do, because programs know that and watch it: the files are in a
// directory of their own, ..data is a link to it, and each name in the volume is a link through ..data. A
// new content is a new directory, and one rename makes it the content.
const (
	dataLink  = "..data"
	freshLink = "..data_tmp"
	// own begins the names of what is not the user's; no key may begin so.
	own = ".."
)

// isWritten reports that a volume has been filled once.
func isWritten(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, dataLink))
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// writeAtomically makes files all that root shows, unless they are that already. It may be cut off
// anywhere: what it leaves is cleared away by the next.
func writeAtomically(root *os.Root, files payload, group *int64) error {
	current, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !isOwnDir(current) || !shows(root, current, files, group) {
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

func isOwnDir(name string) bool {
	return strings.HasPrefix(name, own) && isComponent(name) && name != dataLink && name != freshLink
}

// shows reports that the directory holds these files and no others.
func shows(root *os.Root, dir string, files payload, group *int64) bool {
	there := 0
	same := true
	err := fs.WalkDir(root.FS(), dir, func(at string, d fs.DirEntry, err error) error { // trusted: the same
		if err != nil || d.IsDir() {
			return err
		}
		there++
		want, ok := files[strings.TrimPrefix(at, dir+"/")]
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !ok || !info.Mode().IsRegular() || info.Mode().Perm() != fileMode(want, group) || info.Size() != int64(len(want.data)) {
			same = false
			return fs.SkipAll
		}
		have, err := sys.ReadRegular(root.Name(), at, sys.NoLinks, len(want.data))
		if err == nil && !bytes.Equal(have, want.data) {
			same = false
		}
		return err
	})
	return err == nil && same && there == len(files)
}

// fileMode is a file's mode; its group may read it where the volume belongs to one.
func fileMode(f payloadFile, group *int64) fs.FileMode {
	mode := fs.FileMode(f.mode)
	if group != nil {
		mode |= 0o440
	}
	return mode
}

func writeFiles(root *os.Root, dir string, files payload, group *int64) error {
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

// makeFor makes a directory that the group, if there is one, may read; what comes into it is the group's.
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

func writeFile(root *os.Root, at string, f payloadFile, group *int64) error {
	file, err := root.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(f.data); err != nil {
		return err
	}
	if group != nil {
		if err := file.Chown(-1, int(*group)); err != nil {
			return err
		}
	}
	return file.Chmod(fileMode(f, group))
}

// swap makes dir the content.
func swap(root *os.Root, dir string) error {
	if err := root.Remove(freshLink); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := root.Symlink(dir, freshLink); err != nil {
		return err
	}
	return root.Rename(freshLink, dataLink)
}

// link makes a link for the first element of each file's path.
func link(root *os.Root, files payload) error {
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

// tidy removes what neither belongs to the content nor names a part of it.
func tidy(root *os.Root, current string, files payload) error {
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

// maxFileKey is the most that is read of a file with variables.
const maxFileKey = 1 << 20

// maxFileKeys is the most that is read of all such files of a container.
const maxFileKeys = 4 << 20
