package instance

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/secretenv"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/stdin"
)

// The files that receive a container's output unchanged. containerd's shim appends to them, so a
// container does not wait for a reader and loses no output while there is none.
const (
	stdoutFile = "stdout.raw"
	stderrFile = "stderr.raw"
)

// onceSuffix ends the name of the pipe of a standard input that closes when its last writer has
// gone. The input of any other pipe never ends.
const onceSuffix = ".once"

// messageLimit is the maximum size of a termination message in bytes, counted from its end, as in
// Kubernetes.
const messageLimit = 4096

// Files are the files of instances: output, termination message, standard input and withheld
// values.
type Files struct{ dirs layout.Dirs }

// NewFiles returns the Files below the directories.
func NewFiles(dirs layout.Dirs) *Files { return &Files{dirs} }

// Output returns the paths of the files that receive the output of a start's instance.
func (f *Files) Output(s runtime.Start) (stdout, stderr string) {
	dir := f.dir(s)
	return filepath.Join(dir, stdoutFile), filepath.Join(dir, stderrFile)
}

// dir returns the directory with the output of a start's instance.
func (f *Files) dir(s runtime.Start) string {
	return f.dirs.Revision(s.Pod.UID).RawLog(s.Container.Name, s.ID)
}

// CreateOutput creates the files to which the shim appends.
func (f *Files) CreateOutput(s runtime.Start) error {
	if err := os.MkdirAll(f.dir(s), layout.ModePrivate); err != nil {
		return fmt.Errorf("making the log directory: %w", err)
	}
	stdout, stderr := f.Output(s)
	for _, path := range []string{stdout, stderr} {
		// trusted: a directory of podrun's own
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return fmt.Errorf("making a log file: %w", err)
		}
		file.Close()
	}
	return nil
}

// RemoveOutput removes the raw output of the instance: it has been converted to its log, or is not
// needed any more.
func (f *Files) RemoveOutput(c pod.Container) error {
	if c.UID == "" {
		return nil // nothing of the instance exists, and its pod is not known
	}
	dir := f.dirs.Revision(c.UID).RawLog(c.Name, c.ID)
	if err := os.RemoveAll(dir); err != nil { // trusted: files in it, which podrun made
		return fmt.Errorf("removing the output of %s: %w", c.ID, err)
	}
	return nil
}

// rawLog returns the directory with the raw output of the instance.
func (f *Files) rawLog(c pod.Container) string {
	i := pod.Instance{ID: c.ID, UID: c.UID, Container: c.Name, Attempt: c.Attempt}
	return sys.FirstPresent(f.dirs.RawLogs(i)...)
}

// CreateStdin creates the pipe of the container's standard input and returns its path, "" if the
// container has none. The input of a terminal never ends, as in the CRI, because its end would hang
// up the terminal.
func (f *Files) CreateStdin(s runtime.Start) (string, error) {
	if !s.Container.Stdin {
		return "", nil
	}
	path := layout.Stdin(f.dir(s))
	if s.Container.StdinOnce && !s.Container.TTY {
		path += onceSuffix
	}
	return path, stdin.Make(path)
}

// IsOnce reports whether the standard input with the pipe at path ends with its last writer.
func IsOnce(path string) bool { return strings.HasSuffix(path, onceSuffix) }

// RemoveStdin removes the pipe of an instance that has exited or never ran.
func (f *Files) RemoveStdin(c pod.Container) error {
	path := layout.Stdin(f.rawLog(c))
	return errors.Join(stdin.Remove(path), stdin.Remove(path+onceSuffix))
}

// WithTerminationLog returns the start's mounts and a mount of the file to which the instance
// writes its termination message, if it has one. The file is on the host, because the container's
// own file system is removed before the message is read.
func (f *Files) WithTerminationLog(s runtime.Start) ([]pod.Mount, error) {
	at := filepath.Join("/", s.Container.TerminationMessagePath)
	if at == "/" || at == os.DevNull { // messages to /dev/null are discarded without a file in its place
		return s.Mounts, nil
	}
	path := layout.TerminationLog(f.dir(s))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666) // trusted: a directory of podrun's own
	if err != nil {
		return nil, fmt.Errorf("making the termination log: %w", err)
	}
	defer file.Close()
	// Not by OpenFile, because of the umask: the container may run as any user.
	if err := file.Chmod(0o666); err != nil {
		return nil, fmt.Errorf("making the termination log: %w", err)
	}
	return append(slices.Clip(s.Mounts), pod.Mount{
		HostPath: path, ContainerPath: at, Managed: true,
	}), nil
}

// TerminationMessage returns the message that an exited instance has written, "" if there is none.
func (f *Files) TerminationMessage(c pod.Container) string {
	file, err := sys.OpenRegularAt(layout.TerminationLog(f.rawLog(c)))
	if err != nil {
		return ""
	}
	defer file.Close()
	// Read no more than the limit, however long the file is and whatever still writes to it.
	if info, err := file.Stat(); err == nil && info.Size() > messageLimit {
		_, err = file.Seek(-messageLimit, io.SeekEnd)
		if err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, messageLimit))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(text), "�")
}

// RemoveTerminationLog removes the termination log of an instance whose exit is recorded, and its
// directory if that is empty then: an instance that crashes again and again must not fill the disk.
func (f *Files) RemoveTerminationLog(c pod.Container) error {
	path := layout.TerminationLog(f.rawLog(c))
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a termination log: %w", err)
	}
	_ = os.Remove(filepath.Dir(path)) // fails if raw output is left, which is removed with the pod's data
	return nil
}

// RemoveWithheld removes the withheld values of an instance that has no process.
func (f *Files) RemoveWithheld(uid pod.UID, id string) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	if err := secretenv.Remove(f.dirs.Revision(uid).Withheld(), id); err != nil {
		return fmt.Errorf("removing the withheld variables of container %s: %w", id, err)
	}
	return nil
}
