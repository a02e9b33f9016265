package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/mounted"
)

// Disk stores the checkpoint files. The implementation on the file system and the one in memory
// pass the same tests.
type Disk interface {
	Runs
	// List returns the UIDs that have a checkpoint file, unordered.
	List() ([]pod.UID, error)
	// Path returns the path of the file, for messages.
	Path(uid pod.UID) string
	// Stat returns the stamp of the file's current content; fs.ErrNotExist if there is no file.
	Stat(uid pod.UID) (Stamp, error)
	// Read returns the file's content and its stamp.
	Read(uid pod.UID) ([]byte, Stamp, error)
	// Create is Write for a revision that may have no directory yet: the directory is created
	// together with the file.
	Create(uid pod.UID, data []byte) (Stamp, error)
	// Write replaces the file as a whole: a reader sees the old content or the new one, also after
	// a crash of podrun. After a power failure it may be the old one. fs.ErrNotExist means that the
	// revision's directory does not exist; Write does not create it again.
	Write(uid pod.UID, data []byte) (Stamp, error)
	// WriteDurable is Write for a content that survives a power failure once WriteDurable returns.
	WriteDurable(uid pod.UID, data []byte) (Stamp, error)
	// Remove removes the revision's directory, the checkpoint last, so that an interrupted removal
	// can be resumed. After a power failure what was removed is not there.
	Remove(ctx context.Context, uid pod.UID) error
	// Sweep removes directories whose creation or removal was interrupted.
	Sweep(ctx context.Context) error
}

// Stamp identifies one content of a file: a different stamp means that the content may have
// changed.
type Stamp struct {
	Inode uint64
	// Time is the modification time in nanoseconds.
	Time int64
}

// The prefixes of the directories in which a revision's directory is created and removed. A
// revision's own directory always contains a checkpoint.
const (
	coming = ".coming-"
	going  = ".going-"
)

// osDisk is the Disk on the file system.
type osDisk struct{ dirs layout.Dirs }

// List implements Disk.
func (d osDisk) List() ([]pod.UID, error) {
	entries, err := os.ReadDir(d.dirs.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the pods' directories: %w", err)
	}
	out := make([]pod.UID, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), coming) && !strings.HasPrefix(e.Name(), going) {
			out = append(out, pod.UID(e.Name()))
		}
	}
	return out, nil
}

// Path implements Disk.
func (d osDisk) Path(uid pod.UID) string { return d.dirs.Revision(uid).Checkpoint() }

// Stat implements Disk.
func (d osDisk) Stat(uid pod.UID) (Stamp, error) {
	info, err := os.Lstat(d.dirs.Revision(uid).Checkpoint())
	if err != nil {
		return Stamp{}, err
	}
	return stampOf(info), nil
}

func stampOf(info os.FileInfo) Stamp {
	return Stamp{Inode: sys.Inode(info), Time: info.ModTime().UnixNano()}
}

// Read implements Disk.
func (d osDisk) Read(uid pod.UID) ([]byte, Stamp, error) {
	// Whatever is at the path, opening it neither blocks nor follows a link.
	f, err := os.OpenFile(d.dirs.Revision(uid).Checkpoint(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, Stamp{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostBytes {
		return nil, Stamp{}, fmt.Errorf("%s is not a regular file of at most %d bytes", f.Name(), mostBytes)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, Stamp{}, err
	}
	stamp := stampOf(info)
	if age := time.Since(info.ModTime()); age < tick {
		stamp = Stamp{} // a later content may get the same stamp
	}
	return data, stamp, nil
}

const (
	// mostBytes is the largest size of a checkpoint file that is read, many times the size of any
	// real one.
	mostBytes = 64 << 20
	// tick is longer than the clock step with which the kernel stamps files. Two contents that are
	// written within one tick may have the same time and the same inode number, which was freed and
	// used again.
	tick = 20 * time.Millisecond
)

// Write implements Disk.
func (d osDisk) Write(uid pod.UID, data []byte) (Stamp, error) {
	return d.write(uid, data, sys.WriteFile)
}

// WriteDurable implements Disk.
func (d osDisk) WriteDurable(uid pod.UID, data []byte) (Stamp, error) {
	stamp, err := d.write(uid, data, sys.WriteDurable)
	if err != nil {
		return Stamp{}, err
	}
	if err := sys.SyncDir(d.dirs.Pods()); err != nil { // the revision's directory may be new
		return Stamp{}, err
	}
	return stamp, nil
}

func (d osDisk) write(uid pod.UID, data []byte, to func(string, []byte, os.FileMode) error) (Stamp, error) {
	if err := d.moveAside(d.dirs.Revision(uid).Checkpoint()); err != nil {
		return Stamp{}, err
	}
	if err := to(d.dirs.Revision(uid).Checkpoint(), data, 0o600); err != nil {
		return Stamp{}, err
	}
	return d.Stat(uid)
}

// moveAside renames a directory that is at a checkpoint's path, because no file can replace it.
func (d osDisk) moveAside(path string) error {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return nil
	}
	aside := path + ".directory"
	if err := d.removeBeside(context.Background(), aside); err != nil { // only root can have created it
		return err
	}
	return os.Rename(path, aside)
}

// Create implements Disk.
func (d osDisk) Create(uid pod.UID, data []byte) (Stamp, error) {
	info, err := os.Lstat(d.dirs.Pod(uid))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err = d.create(uid, data); err == nil {
			return d.Stat(uid)
		}
		_ = os.RemoveAll(d.beside(coming, uid)) // trusted: no container has used it
		return Stamp{}, err
	case err != nil:
		return Stamp{}, err
	case !info.IsDir():
		return Stamp{}, &fs.PathError{Op: "open", Path: d.dirs.Pod(uid), Err: unix.ENOTDIR} // List does not return it
	}
	return d.Write(uid, data)
}

// create creates a revision's directory so that it contains its checkpoint from the beginning.
func (d osDisk) create(uid pod.UID, data []byte) error {
	if err := os.MkdirAll(d.dirs.Pods(), layout.ModePrivate); err != nil {
		return err
	}
	fresh := d.beside(coming, uid)
	if err := os.RemoveAll(fresh); err != nil { // trusted: an interrupted creation; no container has used it
		return err
	}
	if err := os.Mkdir(fresh, layout.ModePrivate); err != nil {
		return err
	}
	path := layout.Revision(fresh).Checkpoint()
	if err := sys.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, d.dirs.Pod(uid))
}

// beside returns the path of a revision's directory while it is created or removed.
func (d osDisk) beside(kind string, uid pod.UID) string {
	return filepath.Join(d.dirs.Pods(), kind+string(uid))
}

// Remove implements Disk.
func (d osDisk) Remove(ctx context.Context, uid pod.UID) error {
	dir := d.dirs.Pod(uid)
	info, err := os.Lstat(dir)
	if err == nil && info.IsDir() { // a symbolic link is removed, not followed
		if err := mounted.Nothing(dir); err != nil {
			return err
		}
		err = d.removeContents(ctx, uid)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.removeBeside(ctx, d.beside(going, uid)); err != nil { // the rest of an earlier removal is in the way
		return err
	}
	if err := os.Rename(dir, d.beside(going, uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := sys.SyncRemoved(dir); err != nil { // not all that comes back after a loss of power would be removed again
		return err
	}
	return sys.RemoveTree(ctx, d.beside(going, uid))
}

// removeContents removes everything but the checkpoint from the revision's directory.
func (d osDisk) removeContents(ctx context.Context, uid pod.UID) error {
	entries, err := os.ReadDir(d.dirs.Pod(uid))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(d.dirs.Revision(uid).Checkpoint()) {
			continue
		}
		if err := sys.RemoveTree(ctx, filepath.Join(d.dirs.Pod(uid), e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Sweep implements Disk.
func (d osDisk) Sweep(ctx context.Context) error {
	for _, kind := range []string{coming, going} {
		left, err := filepath.Glob(filepath.Join(d.dirs.Pods(), kind+"*"))
		if err == nil && len(left) > 0 { // whoever was killed may not have synced that
			err = sys.SyncDir(d.dirs.Pods())
		}
		if err != nil {
			return err
		}
		for _, dir := range left {
			if err := d.removeBeside(ctx, dir); err != nil {
				return fmt.Errorf("removing what is left of a pod: %w", err)
			}
		}
	}
	return nil
}

// removeBeside removes a directory that no longer belongs to a revision. It refuses if something is
// mounted there.
func (d osDisk) removeBeside(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := mounted.Nothing(dir); err != nil {
		return err
	}
	return sys.RemoveTree(ctx, dir)
}
