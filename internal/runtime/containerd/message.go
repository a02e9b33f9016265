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

// messageLimit is the maximum size of a termination message in bytes, counted from its end, as in
// Kubernetes.
const messageLimit = 4096

// withTerminationLog adds a mount of the file to which the instance writes its termination message,
// if it has one. The file is on the host, because the container's own file system is removed before
// the message is read.
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
	if err := f.Chmod(0o666); err != nil { // not by OpenFile, because of the umask: the container may run as any user
		return nil, fmt.Errorf("making the termination log: %w", err)
	}
	return append(slices.Clip(s.Mounts), pod.Mount{
		HostPath: file, ContainerPath: path.Join("/", s.Container.TerminationMessagePath), Managed: true,
	}), nil
}

// rawLog returns the directory with the raw output of the instance.
func (r *Runtime) rawLog(c pod.Container) string {
	i := pod.Instance{ID: c.ID, UID: c.UID, Container: c.Name, Attempt: c.Attempt}
	return sys.FirstPresent(r.Dirs.RawLogs(i)...)
}

// terminationMessage returns the message that an exited instance has written, "" if there is none.
func (r *Runtime) terminationMessage(c pod.Container) string {
	f, err := sys.OpenRegularAt(layout.TerminationLog(r.rawLog(c)))
	if err != nil {
		return ""
	}
	defer f.Close()
	// Read no more than the limit, however long the file is and whatever still writes to it.
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

// dropTerminationLog removes the termination log of an instance whose exit is recorded, and its
// directory if that is empty then: an instance that crashes again and again must not fill the disk.
func (r *Runtime) dropTerminationLog(c pod.Container) error {
	file := layout.TerminationLog(r.rawLog(c))
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a termination log: %w", err)
	}
	_ = os.Remove(filepath.Dir(file)) // fails if raw output is left, which is removed with the pod's data
	return nil
}
