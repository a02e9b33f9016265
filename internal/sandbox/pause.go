package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// A process namespace lives as long as its first process, and the end of that process ends all
// others in it. For pods with a shared process namespace, the first process is a program of
// podrun's own. It runs as nobody, without any privileges, in an empty file system, in the pod's
// other namespaces, and in a cgroup below the pod's. It is started inside that cgroup, so that the
// removal of the sandbox finds it there, at whatever moment the process that started it died.
const (
	pinPID    = "pid"
	pauseName = "pause"
	nobody    = 65535
	// pauseCgroupName is the file that records this cgroup, for Sweep.
	pauseCgroupName = "pause.cgroup"
)

// pauseCgroup returns the cgroup of the first process of the process namespace of the sandbox id.
func pauseCgroup(parent, id string) string { return parent + "/" + pauseName + "-" + id }

// startPause starts the program for the sandbox b and pins its process namespace.
func (s *Store) startPause(b *pod.Sandbox) error {
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		return err
	}
	tree, err := cgroup.Open()
	if err != nil {
		return err
	}
	path := pauseCgroup(b.Details.PauseParent, b.ID)
	if err := os.Symlink(path, s.dir.file(b.ID, pauseCgroupName)); err != nil {
		return err
	}
	s.dir.step("pause cgroup")
	root := s.dir.file(b.ID, pauseName)
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	s.dir.step("pause directory")
	pid := 0
	err = sys.OnOwnThread(func() error {
		born, err := tree.Enter(path)
		if err != nil {
			return err
		}
		if born != nil {
			defer born.Close()
		}
		for _, name := range pins(b.Details) {
			if err := enter(s.dir.file(b.ID, name)); err != nil {
				return fmt.Errorf("entering the pod's %s namespace: %w", name, err)
			}
		}
		if err := shutIn(root, program); err != nil {
			return err
		}
		pid, err = forkPause(born)
		return err
	})
	if err != nil {
		return fmt.Errorf("starting the first process of the pod's process namespace: %w", err)
	}
	s.dir.step("pause")
	if b.Details.PauseStart, _, err = startTime(pid); err != nil {
		return err
	}
	b.Details.PausePID = pid
	return pinNamespace(s.dir.file(b.ID, pinPID), "/proc/"+strconv.Itoa(pid)+"/ns/pid", pinPID, s.dir.step)
}

// shutIn moves the calling thread into a file system of its own that contains only the program,
// drops the thread's privileges, and makes the next process that it forks the first one of a
// process namespace.
func shutIn(root string, program []byte) error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"private mounts", func() error { return sys.SetPropagation("/", sys.PrivateTree) }},
		{"a file system", func() error {
			return sys.MountFS("tmpfs", "pause", root, "size=16k,mode=555", sys.AllowExec)
		}},
		{"the program", func() error { return os.WriteFile(filepath.Join(root, pauseName), program, 0o111) }},
		{"its directory", func() error { return unix.Chdir(root) }},
		{"its root", func() error { return sys.PivotRoot(".") }},
		{"nothing else", func() error { return sys.Detach(".") }},
		{"its root's directory", func() error { return unix.Chdir("/") }},
		{"a read-only file system", func() error { return sys.RemountReadOnly("/", sys.AllowExec) }},
		{"no new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"a process namespace", func() error { return unix.Unshare(unix.CLONE_NEWPID) }},
		{"no capabilities", dropBounding},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("making %s: %w", step.what, err)
		}
	}
	return nil
}

// dropBounding removes every capability from all processes that the thread forks.
func dropBounding() error {
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			return nil // past the last capability
		} else if err != nil {
			return err
		}
	}
}

func forkPause(born *os.File) (int, error) {
	// It gets nothing that this process has itself inherited, such as the pipe of a caller that waits for
	// its end. Kernels before 5.11 cannot do that.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	attributes := &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if born != nil {
		attributes.UseCgroupFD, attributes.CgroupFD = true, int(born.Fd())
	}
	// No open files at all: not even the standard ones.
	return syscall.ForkExec("/"+pauseName, []string{"/" + pauseName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Sys: attributes,
	})
}

// startTime returns when a process was started, in the kernel's ticks since boot, which
// distinguishes it from a later process with the same PID. ended reports that it is exiting, or is
// a zombie.
func startTime(pid int) (ticks uint64, ended bool, err error) {
	fields, err := sys.ProcessStat(pid)
	if err != nil {
		return 0, false, err
	}
	// The state is field 3, the flags are field 9, the start time is field 22.
	const state, flags, start = 0, 9 - 3, 22 - 3
	if len(fields) <= start {
		return 0, false, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	ticks, err = strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return 0, false, err
	}
	set, err := strconv.ParseUint(fields[flags], 10, 64)
	// The first process of a process namespace ends after all others in it: they may have ended,
	// and no other can be started there, before it has.
	const exiting = 0x4
	return ticks, fields[state] == "Z" || fields[state] == "X" || set&exiting != 0, err
}

// isPaused reports whether the first process of the sandbox's process namespace is alive.
func isPaused(d pod.SandboxDetails) bool {
	start, ended, err := startTime(d.PausePID)
	if err != nil || start != d.PauseStart {
		return false
	}
	if ended {
		_, _ = syscall.Wait4(d.PausePID, nil, syscall.WNOHANG, nil) // reap it, if this process is the parent
	}
	return !ended
}

// endPause ends the first process and removes its files; the file that records its cgroup is
// removed only when the process has ended.
func (s *Store) endPause(b pod.Sandbox) error {
	unkilled := s.killPause(b)
	s.dir.step("pause ended")
	errs := []error{unkilled, unpin(s.dir.file(b.ID, pinPID))}
	s.dir.step("pid removed")
	errs = append(errs, removeFile(s.dir.file(b.ID, pauseName)))
	if unkilled == nil {
		errs = append(errs, removeFile(s.dir.file(b.ID, pauseCgroupName)))
	}
	return errors.Join(errs...)
}

// killPause kills the first process and removes its cgroup.
func (s *Store) killPause(b pod.Sandbox) error {
	cgroups, err := s.pauseCgroups(b)
	if err != nil || len(cgroups) == 0 {
		return err
	}
	tree, err := cgroup.Open()
	if err != nil {
		return err
	}
	for _, path := range cgroups {
		err = errors.Join(err, tree.Remove(path))
	}
	return err
}

// pauseCgroups returns the cgroups in which the first process may be: the one in the details, and
// those recorded in the run directory.
func (s *Store) pauseCgroups(b pod.Sandbox) ([]string, error) {
	var out []string
	if b.Details.PauseParent != "" {
		out = append(out, pauseCgroup(b.Details.PauseParent, b.ID))
	}
	kept, err := readLink(s.dir.file(b.ID, pauseCgroupName))
	if err != nil {
		return nil, err
	}
	out = append(out, kept)
	if former, err := s.dir.readIntent(b.ID); err == nil && former != nil {
		out = append(out, former.PauseCgroup)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(path string) bool { return path == "" }), nil
}
