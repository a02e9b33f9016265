package sys

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxOpenDirs is how many directories of a tree are open at a time, however deep the tree is.
const maxOpenDirs = 32

// TreeVisitor contains the callbacks of WalkTree. Descriptors are open only during the call, and
// names are relative to the directory of the descriptor: nothing is done by path, because another
// process could redirect a path.
type TreeVisitor struct {
	// File is called for everything that is not a directory. By then it may be removed or be
	// something else.
	File func(dir int, name string) error
	// Enter is called for a directory, open for reading, before its entries; it may be nil.
	Enter func(dir int) error
	// Leave is called after a directory's entries were visited; it may be nil. If it returns true,
	// the directory is read once more and Leave is called again. tries is the number of earlier
	// calls for the directory.
	Leave func(parent int, name string, tries int) (again bool, err error)
	// Unopened is called for a directory that cannot be opened; the error is EXDEV if a file system
	// is mounted on it.
	Unopened func(name string, err error) error
}

// treeDir is a directory on the path from the root of a tree to the current directory of the walk.
type treeDir struct {
	fd       int // -1: closed, to limit the number of open descriptors
	name     string
	dev, ino uint64
	// unread are the entries that were read and not visited; next is the position after the last
	// visited entry.
	buffer, unread []byte
	next           int64
	tries          int
}

// treeWalk is the state of one walk.
type treeWalk struct {
	visitor TreeVisitor
	// way is the path from the root to the current directory. The root is open, and so are all
	// directories from oldest on.
	way    []treeDir
	oldest int
	spare  [][]byte // unused buffers
}

// WalkTree visits everything in a directory, but not the directory itself. Other processes may
// change the tree meanwhile and may try to lead podrun astray: symbolic links are not followed,
// mount points are not crossed, and what is moved away counts as removed. Its run time grows with
// the size of the tree; it uses maxOpenDirs descriptors and a few more at most. It returns the
// errors of the visitor, of the context, and of reading directories.
func WalkTree(ctx context.Context, root *os.File, visitor TreeVisitor) error {
	w := &treeWalk{visitor: visitor, oldest: 1}
	defer func() {
		for i := range w.way {
			w.close(&w.way[i])
		}
	}()
	// Opened again, because the read position belongs to the open file description.
	fd, err := retried(func() (int, error) {
		return unix.Openat(int(root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err == nil {
		err = w.push(fd, "")
	}
	for err == nil && len(w.way) > 0 {
		if err = ctx.Err(); err == nil {
			err = w.step()
		}
	}
	return err
}

// push enters a directory.
func (w *treeWalk) push(fd int, name string) error {
	dev, ino, err := identityOf(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	w.way = append(w.way, treeDir{fd: fd, name: name, dev: dev, ino: ino})
	if len(w.way)-w.oldest > maxOpenDirs {
		w.close(&w.way[w.oldest])
		w.oldest++
	}
	return nil
}

// close closes a directory's descriptor. Entries that were read and not visited are read again
// later.
func (w *treeWalk) close(d *treeDir) {
	if d.fd < 0 {
		return
	}
	unix.Close(d.fd)
	if d.buffer != nil {
		w.spare = append(w.spare, d.buffer)
	}
	d.fd, d.buffer, d.unread = -1, nil, nil
}

// step visits the next entry of the current directory, or leaves the directory after the last one.
func (w *treeWalk) step() error {
	d := &w.way[len(w.way)-1]
	name, kind, err := w.read(d)
	switch {
	case err != nil:
		return err
	case name == "":
		return w.leave()
	case name == "." || name == "..":
		return nil
	case kind != unix.DT_DIR && kind != unix.DT_UNKNOWN:
		return w.visitor.File(d.fd, name)
	}
	fd, err := openChild(d.fd, name)
	switch {
	case err == nil && w.visitor.Enter != nil:
		if err := w.visitor.Enter(fd); err != nil {
			unix.Close(fd)
			return err
		}
		return w.push(fd, name)
	case err == nil:
		return w.push(fd, name)
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return w.visitor.File(d.fd, name)
	}
	return w.visitor.Unopened(name, err)
}

// read returns the next entry; "" after the last one.
func (w *treeWalk) read(d *treeDir) (name string, kind byte, err error) {
	if len(d.unread) == 0 {
		if d.buffer == nil {
			d.buffer = w.newBuffer()
		}
		n, err := retried(func() (int, error) { return unix.Getdents(d.fd, d.buffer) })
		if errors.Is(err, unix.ENOENT) { // the directory was removed
			n, err = 0, nil
		}
		if err != nil || n <= 0 {
			return "", 0, err
		}
		d.unread = d.buffer[:n]
	}
	// A struct linux_dirent64: inode, position after it, length, type, name.
	const fixed = 19
	e := d.unread
	if len(e) < fixed {
		return "", 0, unix.EBADMSG
	}
	length := int(binary.NativeEndian.Uint16(e[16:]))
	if length < fixed || length > len(e) {
		return "", 0, unix.EBADMSG
	}
	d.next, d.unread = int64(binary.NativeEndian.Uint64(e[8:])), e[length:]
	return unix.ByteSliceToString(e[fixed:length]), e[18], nil
}

func (w *treeWalk) newBuffer() []byte {
	last := len(w.spare) - 1
	if last < 0 {
		return make([]byte, 8<<10)
	}
	b := w.spare[last]
	w.spare = w.spare[:last]
	return b
}

// leave returns to the directory that contains the current one.
func (w *treeWalk) leave() error {
	top := len(w.way) - 1
	if top > 0 {
		if err := w.reopen(); err != nil {
			return err
		}
	}
	if top != len(w.way)-1 { // the directory was moved away, and its former parent is unknown
		return nil
	}
	d := &w.way[top]
	if top > 0 && w.visitor.Leave != nil {
		again, err := w.visitor.Leave(w.way[top-1].fd, d.name, d.tries)
		if err != nil {
			return err
		}
		if again {
			d.tries++
			d.next, d.unread = 0, nil
			_, err := unix.Seek(d.fd, 0, unix.SEEK_SET)
			return err
		}
	}
	w.close(d)
	w.way = w.way[:top]
	w.oldest = max(min(w.oldest, top), 1)
	return nil
}

// reopen makes sure that the parent of the current directory is open. If the parent is not in its
// former position any more, the walk continues at the last directory on the path that is.
func (w *treeWalk) reopen() error {
	last := len(w.way) - 1
	above := &w.way[last-1]
	if above.fd >= 0 {
		return nil
	}
	fd, err := retried(func() (int, error) {
		return unix.Openat(w.way[last].fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err == nil && !above.is(fd) {
		unix.Close(fd)
		err = unix.ENOENT
	}
	if err != nil {
		return w.fromRoot(last - 1)
	}
	w.oldest = last - 1
	return above.resume(fd)
}

// fromRoot opens the directory way[upTo] by the names that lead to it from the root. If one of them
// leads elsewhere now, way ends before it.
func (w *treeWalk) fromRoot(upTo int) error {
	at, fd := 0, w.way[0].fd
	for at < upTo {
		next, err := openChild(fd, w.way[at+1].name)
		if err == nil && !w.way[at+1].is(next) {
			unix.Close(next)
			err = unix.ENOENT
		}
		if err != nil {
			break
		}
		if at > 0 {
			unix.Close(fd)
		}
		at, fd = at+1, next
	}
	if at < upTo {
		for i := at + 1; i < len(w.way); i++ {
			w.close(&w.way[i])
		}
		w.way = w.way[:at+1]
	}
	if at == 0 {
		w.oldest = 1
		return nil
	}
	w.oldest = at
	return w.way[at].resume(fd)
}

// is reports whether the descriptor is of this directory.
func (d *treeDir) is(fd int) bool {
	dev, ino, err := identityOf(fd)
	return err == nil && dev == d.dev && ino == d.ino
}

// resume continues reading a directory that was closed.
func (d *treeDir) resume(fd int) error {
	d.fd = fd
	_, err := unix.Seek(fd, d.next, unix.SEEK_SET)
	return err
}

func identityOf(fd int) (dev, ino uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Dev, st.Ino, err
}

// openChild opens a directory in another one, on the same mount.
func openChild(dir int, name string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: uint64(NoLinks) | unix.RESOLVE_NO_XDEV,
	}
	return retried(func() (int, error) { return unix.Openat2(dir, name, how) })
}

// OpenTree opens a directory for WalkTree. It does not follow a symbolic link in its place.
func OpenTree(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// OpenInode opens a file that is not a directory, to inspect it and to change its owner and mode
// through FDPath, whatever gets its name meanwhile. This has no effect on the file itself: the
// driver of a device is not called.
func OpenInode(dir int, name string) (int, error) {
	return retried(func() (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// FDPath returns a path to the file of a descriptor, for system calls that do not accept
// descriptors from OpenInode.
func FDPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
