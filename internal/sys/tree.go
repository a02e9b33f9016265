package sys

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxOpenDirs is how many directories of a tree are open at a time, however deep it is.
const maxOpenDirs = 32

// TreeVisitor is what WalkTree does on its way. Descriptors are open only during the call, and names are in the
// directory of the descriptor: nothing is done by a path, which another process may have led elsewhere.
type TreeVisitor struct {
	// File is called for what is no directory. It may be gone, or something else, by then.
	File func(dir int, name string) error
	// Enter is called for a directory, open to be read, before what is in it; nil: nothing is done.
	Enter func(dir int) error
	// Leave is called after what is in a directory, as often as it returns true: then it is read once more. tries
	// counts the calls before. nil: nothing is done.
	Leave func(parent int, name string, tries int) (again bool, err error)
	// Unopened is called for a directory that cannot be opened; the error is EXDEV where something is mounted.
	Unopened func(name string, err error) error
}

// treeDir is a directory on the way from the root of a tree.
type treeDir struct {
	fd       int // -1: closed, because others needed the descriptor
	name     string
	dev, ino uint64
	// unread are the entries that were read and not visited, after what next is the position to read from.
	buffer, unread []byte
	next           int64
	tries          int
}

// treeWalk is one walk.
type treeWalk struct {
	visitor TreeVisitor
	// way is from the root to where the walk is. The root is open, and so is all from oldest on.
	way    []treeDir
	oldest int
	spare  [][]byte // buffers
}

// WalkTree visits all that is in a directory, but not the directory itself. Other processes may change the tree
// meanwhile, and want podrun to go astray: links are not followed, mounts not crossed, and what is moved away is as if
// removed. It takes time as the tree is large, and never more than maxOpenDirs descriptors and a few more. Its errors
// are the visitor's, the context's and those of reading.
func WalkTree(ctx context.Context, root *os.File, visitor TreeVisitor) error {
	w := &treeWalk{visitor: visitor, oldest: 1}
	defer func() {
		for i := range w.way {
			w.close(&w.way[i])
		}
	}()
	// Opened anew, because a position is the description's.
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

// push goes into a directory.
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

// close gives a directory's descriptor back. What was read of it and not visited is read again.
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

// step visits the next entry of the directory where the walk is, or leaves that.
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

// read returns the next entry; "" after the last.
func (w *treeWalk) read(d *treeDir) (name string, kind byte, err error) {
	if len(d.unread) == 0 {
		if d.buffer == nil {
			d.buffer = w.newBuffer()
		}
		n, err := retried(func() (int, error) { return unix.Getdents(d.fd, d.buffer) })
		if errors.Is(err, unix.ENOENT) { // it was removed
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

// leave goes back to the directory that the walk came from.
func (w *treeWalk) leave() error {
	top := len(w.way) - 1
	if top > 0 {
		if err := w.reopen(); err != nil {
			return err
		}
	}
	if top != len(w.way)-1 { // moved away, and nobody knows where from
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

// reopen sees to it that the directory above the last one is open. If it is not where it was any more, the walk is
// back at the last one that is.
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

// fromRoot opens the directory that is to be way[upTo] by the names that lead to it from the root.
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

// is reports that the descriptor is of this directory.
func (d *treeDir) is(fd int) bool {
	dev, ino, err := identityOf(fd)
	return err == nil && dev == d.dev && ino == d.ino
}

// resume goes on to read a directory that was closed.
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

// openChild opens a directory that is in another, on the same mount.
func openChild(dir int, name string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: uint64(NoLinks) | unix.RESOLVE_NO_XDEV,
	}
	return retried(func() (int, error) { return unix.Openat2(dir, name, how) })
}

// OpenTree opens a directory to walk. A link in its place is not followed.
func OpenTree(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// OpenInode opens a file that is no directory to look at it and to change its owner and mode by FDPath, whatever gets
// its name meanwhile. Nothing happens to the file by that: a device's driver does not notice.
func OpenInode(dir int, name string) (int, error) {
	return retried(func() (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// FDPath is a path to what a descriptor is of, for calls that do not take descriptors that OpenInode returned.
func FDPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
