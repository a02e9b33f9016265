package secretenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

// maxSize is the most that a container's file may have. The kernel gives a process less than half of it.
const maxSize = 16 << 20

// Write puts into dir, which must be in memory, what a container's process is to get.
func Write(dir, id string, p Process) error {
	if !isID(id) {
		return fmt.Errorf("%q is not a container's ID", id)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if len(text) > maxSize {
		return fmt.Errorf("arguments and variables have %d bytes, more than %d", len(text), maxSize)
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	return replace(d, fileOf(id), text)
}

// Remove removes from dir what is there for a container. It may be called again.
func Remove(dir, id string) error {
	if !isID(id) {
		return nil // Write made nothing
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return errors.Join(root.RemoveAll(fileOf(id)), root.RemoveAll(bundleOf(id)))
}

// Adopt makes the file that the former version named after a container the one of the container's ID, after ready.
// Where that is done already it does nothing.
func Adopt(dir, name, id string, ready func() error) error {
	if !isID(id) {
		return fmt.Errorf("%q is not a container's ID", id)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Lstat(name); err != nil {
		return err
	}
	if _, err := root.Lstat(fileOf(id)); err == nil {
		return nil
	}
	if err := ready(); err != nil {
		return err
	}
	if err := root.Link(name, fileOf(id)); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// A container's file and its bundle. The former version named both after the container, whose name has no dot.
func fileOf(id string) string   { return id + ".json" }
func bundleOf(id string) string { return id + ".bundle" }

// isID reports that a container's ID is one component of a path, and no flag.
func isID(id string) bool {
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// kept is what a container's process is to get, and the directory that has it.
type kept struct {
	Process
	id, path string
	dir      *os.File
}

// find returns what is withheld from the container with the ID. It is with the container's pod, which is looked for:
// an ID is used once, and what else the container could be asked for its pod is not to be believed. Who calls closes it.
func find(root, id string) (*kept, error) {
	if !isID(id) {
		return nil, fmt.Errorf("%q is not a container's ID", id)
	}
	path := layout.Dirs{Root: root}.Pods()
	pods, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer pods.Close()
	uids, err := pods.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, uid := range uids {
		within := filepath.Join(uid, filepath.Base(layout.Dirs{}.Withheld("")))
		k, err := load(pods, within, id)
		if err == nil {
			k.path = filepath.Join(path, within)
			return k, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			failed = append(failed, err)
		}
	}
	return nil, errors.Join(append(failed, fmt.Errorf("what is withheld from container %s is in no pod's memory", id))...)
}

// load reads the container's file in a directory.
func load(pods *os.File, within, id string) (*kept, error) {
	dir, err := sys.OpenBeneath(pods, within, sys.NoLinks, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	k := &kept{dir: dir, id: id}
	text, err := readOwn(dir, fileOf(id))
	if err == nil {
		err = json.Unmarshal(text, &k.Process)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return k, nil
}

// readOwn reads a file as replace makes them, and no other.
func readOwn(dir *os.File, name string) ([]byte, error) {
	f, err := sys.OpenBeneath(dir, name, sys.NoLinks, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode != unix.S_IFREG|0o600 || int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s is not a file of podrun's: mode %o, user %d", name, st.Mode, st.Uid)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("%s has more than %d bytes", name, maxSize)
	}
	return text, err
}

// bundle makes a bundle for the container beside its file, and returns its path.
func (k *kept) bundle(config []byte) (string, error) {
	name := bundleOf(k.id)
	if err := unix.Mkdirat(int(k.dir.Fd()), name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	dir, err := sys.OpenBeneath(k.dir, name, sys.NoLinks, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	return filepath.Join(k.path, name), replace(dir, "config.json", config)
}

// replace makes a file of a directory anew, and gives it its name when it is whole.
func replace(dir *os.File, name string, text []byte) error {
	parent, other := int(dir.Fd()), name+".new"
	if err := unix.Unlinkat(parent, other, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", other, err)
	}
	f, err := sys.OpenBeneath(dir, other, sys.NoLinks, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return unix.Renameat(parent, other, parent, name)
}
