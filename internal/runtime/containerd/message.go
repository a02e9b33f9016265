package containerd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
)

// messageLimit is how much of a termination message counts, from its end, as in Kubernetes.
const messageLimit = 4096

// withTerminationLog adds the file that the instance writes its termination message to, if it is to have
// one. The file is on the machine, because the container's own file system is gone when it is asked for.
func (r *Runtime) withTerminationLog(s runtime.Start) ([]pod.Mount, error) {
	if s.Container.TerminationMessagePath == "" {
		return s.Mounts, nil
	}
	file := layout.TerminationLog(r.Dirs.RawLog(s.Pod.UID, s.Container.Name, s.ID))
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("making the termination log: %w", err)
	}
	defer f.Close()
	if err := f.Chmod(0o666); err != nil { // apart, because of the umask: the container's user may be any
		return nil, fmt.Errorf("making the termination log: %w", err)
	}
	return append(slices.Clip(s.Mounts), pod.Mount{
		HostPath: file, ContainerPath: path.Join("/", s.Container.TerminationMessagePath), Managed: true,
	}), nil
}

// rawLog is the directory of what the instance wrote.
func (r *Runtime) rawLog(c pod.Container) string {
	i := pod.Instance{ID: c.ID, UID: c.UID, Container: c.Name, Attempt: c.Attempt}
	return sys.FirstPresent(r.Dirs.RawLogs(i)...)
}

// terminationMessage is the message that an ended instance has left, "" if it left none.
func (r *Runtime) terminationMessage(c pod.Container) string {
	f, err := sys.OpenRegularAt(layout.TerminationLog(r.rawLog(c)))
	if err != nil {
		return ""
	}
	defer f.Close()
	// However long it is, and whatever still writes to it, no more than the limit is read.
	if info, err := f.Stat(); err == nil && info.Size() > messageLimit {
		_, err = f.Seek(-messageLimit, io.SeekEnd)
		if err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, messageLimit))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(text), "�")
}

// dropTerminationLog removes the file of an instance whose exit is recorded, and its directory if nothing
// else is in it: one that crashes for ever must not fill the disk.
func (r *Runtime) dropTerminationLog(c pod.Container) error {
	file := layout.TerminationLog(r.rawLog(c))
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a termination log: %w", err)
	}
	_ = os.Remove(filepath.Dir(file)) // raw output that is left goes with the pod's data
	return nil
}
