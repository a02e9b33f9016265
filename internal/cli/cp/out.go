package cp

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// out copies out of the container. A directory's files go into the directory to, as with kubectl cp; a file goes into
// it if it exists.
func (t *transfer) out(from, to string) error {
	e, err := t.resolve(from)
	if err != nil {
		return err
	}
	defer e.Close()
	if why := notCopied(e); why != "" {
		return fmt.Errorf("%s is %s: it is not copied", t.shown(from), why)
	}
	if e.directory() {
		if err := os.MkdirAll(to, 0o777); err != nil {
			return err
		}
		root, err := os.OpenRoot(to)
		if err != nil {
			return err
		}
		defer root.Close()
		return t.directoryOut(e, t.absolute(from), root, ".", 0)
	}
	info, err := os.Stat(to) // trusted: the user's
	switch {
	case err == nil && info.IsDir():
		to = filepath.Join(to, path.Base(t.absolute(from)))
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", to) // nor is it replaced, as /dev/stdout
	case err != nil && strings.HasSuffix(to, "/"):
		return fmt.Errorf("%s is not a directory", to)
	}
	dir, name := filepath.Split(to)
	root, err := os.OpenRoot(filepath.Join(dir, "."))
	if err != nil {
		return err
	}
	defer root.Close()
	return t.fileOut(e, t.absolute(from), root, name)
}

// notCopied says what an entry is that is never copied out of a container; "" for a file and a directory.
func notCopied(e entry) string {
	switch {
	case !e.regular() && !e.directory():
		return e.kindName()
	case e.ofTheKernel():
		return "of the kernel"
	}
	return ""
}

// directoryOut copies what is in a directory of the container into one beneath root.
func (t *transfer) directoryOut(e entry, from string, root *os.Root, to string, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s: more than %d directories in each other", t.shown(from), deepest)
	}
	err := t.children(e, func(dir *os.File, name string) error {
		return t.entryOut(dir, path.Join(from, name), root, filepath.Join(to, name), depth)
	})
	if err != nil && t.ctx.Err() == nil {
		err = t.fail(from, err)
	}
	return err
}

// entryOut copies one entry of a directory.
func (t *transfer) entryOut(dir *os.File, from string, root *os.Root, to string, depth int) error {
	e, err := entryIn(dir, path.Base(from))
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed since the directory was read
	}
	if err != nil {
		return t.fail(from, err)
	}
	defer e.Close()
	if why := notCopied(e); why != "" {
		t.skip(t.shown(from), why)
		return nil
	}
	if e.regular() {
		return t.fileOut(e, from, root, to)
	}
	if err := root.Mkdir(to, e.perm()|0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if info, err := root.Lstat(to); err != nil || !info.IsDir() {
		return errors.Join(fmt.Errorf("%s is not a directory", filepath.Join(root.Name(), to)), err)
	}
	return t.directoryOut(e, from, root, to, depth+1)
}

// fileOut copies a file of the container to a name beneath root. A copy that fails leaves what had the name. The new
// file has the mode of the old one as far as the umask permits.
func (t *transfer) fileOut(e entry, from string, root *os.Root, to string) error {
	if info, err := root.Lstat(to); err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0 {
		return fmt.Errorf("%s is not a regular file", filepath.Join(root.Name(), to))
	}
	in, err := e.open()
	if err != nil {
		return t.fail(from, err)
	}
	defer in.Close()
	temporary := filepath.Join(filepath.Dir(to), temporaryName())
	out, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, e.perm())
	if err != nil {
		return err
	}
	if e.st.Size < smallest {
		err = t.bounded(out, in, e.st.Size)
	} else {
		err = t.data(out, in, e.st.Size)
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = root.Rename(temporary, to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", t.shown(from), err), root.Remove(temporary))
	}
	return nil
}
