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

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// maxSize is the maximum size of a container's file, in bytes. The kernel accepts less than half of
// it for a process's arguments and variables.
const maxSize = 16 << 20

// Write stores the complete process of a container in dir, which must be in memory.
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
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0) // trusted: podrun's own
	if err != nil {
		return err
	}
	defer d.Close()
	if err = replace(d, fileOf(id), text); errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the variables and arguments of the pod's containers with Secrets do not fit into the "+
			"memory for them: %w", err)
	}
	return err
}

// Remove removes from dir everything that is stored for a container. It is no error if nothing is.
func Remove(dir, id string) error {
	if !isID(id) {
		return nil // Write has stored nothing
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return errors.Join(root.RemoveAll(fileOf(id)), root.RemoveAll(bundleOf(id))) // trusted: files of podrun's own
}

// Adopt links the file that a former version of podrun named after the container to the name with
// the container's ID. It calls ready before that. It does nothing if the link exists.
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

// fileOf and bundleOf return the names of a container's file and its bundle. The former version
// named both after the container, whose name has no dot, so the names never collide.
func fileOf(id string) string   { return id + ".json" }
func bundleOf(id string) string { return id + ".bundle" }

// isID reports whether a container's ID is valid: at most 64 ASCII letters and digits. Such an ID
// is one component of a path, and no flag.
func isID(id string) bool {
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// kept is the complete process of a container, with the open directory that has its file.
type kept struct {
	Process
	id, path string
	dir      *os.File
}

// find returns what is withheld from the container with the ID. It searches the directories of all
// pods for the ID's file: an ID is used only once, and other data of the container that names its
// pod cannot be trusted. The caller closes kept.dir.
func find(root, id string) (*kept, error) {
	if !isID(id) {
		return nil, fmt.Errorf("%q is not a container's ID", id)
	}
	path := layout.Dirs{Root: root}.Pods()
	pods, err := os.Open(path) // trusted: podrun's own
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
		within := filepath.Join(uid, filepath.Base(layout.Dirs{}.Revision("").Withheld()))
		k, err := load(pods, within, id)
		if err == nil {
			k.path = filepath.Join(path, within)
			return k, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			failed = append(failed, err)
		}
	}
	return nil, errors.Join(append(failed, fmt.Errorf("no pod has the withheld values of container %s", id))...)
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

// readOwn reads a file if its mode and owner are those that replace sets; any other file is an
// error.
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
		return nil, fmt.Errorf("%s was not written by podrun: mode %o, user %d", name, st.Mode, st.Uid)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("%s has more than %d bytes", name, maxSize)
	}
	return text, err
}

// bundle creates a bundle for the container beside its file, and returns the bundle's path.
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

// replace writes a file of a directory under a temporary name and renames it when it is complete.
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
		return errors.Join(err, unix.Unlinkat(parent, other, 0)) // it would take the place of others
	}
	return unix.Renameat(parent, other, parent, name)
}
