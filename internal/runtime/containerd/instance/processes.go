package instance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/cgroup"
)

// Hierarchies returns the mounts of the cgroup hierarchies: one for v2, several for v1.
func Hierarchies() ([]*mountinfo.Info, error) {
	return mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
}

// filesIn returns the contents of those files of a cgroup that exist, from all hierarchies.
func filesIn(path string, names ...string) (texts []string) {
	mounts, err := Hierarchies()
	if err != nil || path == "" {
		return nil
	}
	for _, m := range mounts {
		for _, name := range names {
			if text, err := os.ReadFile(filepath.Join(m.Mountpoint, path, name)); err == nil { // trusted: the kernel's
				texts = append(texts, string(text))
			}
		}
	}
	return texts
}

// Processes returns the IDs of the processes in a cgroup and its descendants, in all hierarchies: none for the path "".
func Processes(path string) (pids []int) {
	mounts, err := Hierarchies()
	if err != nil || path == "" {
		return nil
	}
	for _, m := range mounts {
		if below, err := cgroup.ProcessesBelow(filepath.Join(m.Mountpoint, path)); err == nil {
			pids = append(pids, below...)
		}
	}
	slices.Sort(pids)
	return slices.DeleteFunc(slices.Compact(pids), func(pid int) bool { return pid <= 1 })
}

// began reports whether the program of a container has begun, from runc's state of the container
// in the directory runcState; known is false if there is none. Until the program may begin, runc's
// init waits at a FIFO for `runc start`, which removes it afterwards. If containerd dies during a
// start, `runc start` is killed: before init could write to the FIFO, which then ends with an exit
// code of its own, or later, and then the FIFO stays although the program runs. A successful write
// sets the FIFO's modification time; without one, the directory's is later, because runc writes its
// state there once init is prepared. crun does all this in the same way.
func began(runcState, id string) (began, known bool) {
	dir, err := os.Stat(filepath.Join(runcState, id)) // trusted: only root's
	if err != nil {
		return false, false
	}
	fifo, err := os.Lstat(filepath.Join(runcState, id, "exec.fifo"))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrNotExist)
	}
	return fifo.ModTime().After(dir.ModTime()), true
}

// IsInside reports whether a process is the container's program rather than the init of the low-level
// runtime (runc), which waits in the container to become that program: its executable is then a file of the
// container.
func IsInside(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	root, err := os.Stat(filepath.Join(dir, "root")) // trusted: only its identity is read
	if err != nil {
		return false
	}
	if own, err := os.Stat("/"); err != nil || os.SameFile(root, own) { // trusted: only its identity is read
		return false
	}
	path, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return false
	}
	program, err := os.Stat(filepath.Join(dir, "exe")) // trusted: only its identity is read
	if err != nil {
		return false
	}
	there, err := os.Stat(filepath.Join(dir, "root", path)) // trusted: only its identity is read
	return err == nil && os.SameFile(program, there)
}
