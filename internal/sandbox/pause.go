package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/host"
)

// A process namespace lives as long as its first process, and ends all others with it. For pods that share
// one, that is a program of podrun's own: nobody, without any right, in an empty file system, in the pod's
// other namespaces and in a cgroup below the pod's. It is born in that cgroup, so that whoever clears away
// a sandbox finds it there, at whatever moment its maker died.
const (
	pinPID    = "pid"
	pauseName = "pause"
	nobody    = 65535
)

// startPause starts the program for the sandbox id and pins its process namespace.
func (s *Store) startPause(id string, e *entry) error {
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		return err
	}
	tree, err := cgroup.Open()
	if err != nil {
		return err
	}
	root := s.file(id, pauseName)
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	s.step("pause directory")
	pid := 0
	err = onThrowawayThread(func() error {
		born, err := tree.Enter(e.PauseCgroup)
		if err != nil {
			return err
		}
		if born != nil {
			defer born.Close()
		}
		for _, name := range e.pins() {
			if err := enter(s.file(id, name)); err != nil {
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
	s.step("pause")
	if e.PauseStart, _, err = startTime(pid); err != nil {
		return err
	}
	e.PausePID = pid
	return pinNamespace(s.file(id, pinPID), "/proc/"+strconv.Itoa(pid)+"/ns/pid", pinPID, s.step)
}

// shutIn takes the thread into a file system of its own in which nothing is but the program, takes its
// rights away and makes what it will fork the first process of a process namespace.
func shutIn(root string, program []byte) error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"private mounts", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"a file system", func() error {
			return unix.Mount("pause", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=16k,mode=555")
		}},
		{"the program", func() error { return os.WriteFile(filepath.Join(root, pauseName), program, 0o111) }},
		{"its directory", func() error { return unix.Chdir(root) }},
		{"its root", func() error { return unix.PivotRoot(".", ".") }},
		{"nothing else", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"its root's directory", func() error { return unix.Chdir("/") }},
		{"a read-only file system", func() error {
			return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
		}},
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

// dropBounding takes every capability from all that the thread forks.
func dropBounding() error {
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			return nil // past the last one
		} else if err != nil {
			return err
		}
	}
}

func forkPause(born *os.File) (int, error) {
	attributes := &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if born != nil {
		attributes.UseCgroupFD, attributes.CgroupFD = true, int(born.Fd())
	}
	// No files at all: not even the standard ones.
	return syscall.ForkExec("/"+pauseName, []string{"/" + pauseName}, &syscall.ProcAttr{Dir: "/", Env: []string{}, Sys: attributes})
}

// startTime tells a process from another that gets its number later: when it was started, in the kernel's
// ticks since boot. Ended says that it is ending, or waits for its parent to hear of its end.
func startTime(pid int) (ticks uint64, ended bool, err error) {
	fields, err := host.ProcessStat(pid)
	if err != nil {
		return 0, false, err
	}
	// The state is field 3, the flags field 9, the start field 22.
	const state, flags, start = 0, 9 - 3, 22 - 3
	if len(fields) <= start {
		return 0, false, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	ticks, err = strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return 0, false, err
	}
	set, err := strconv.ParseUint(fields[flags], 10, 64)
	// The first of a process namespace ends after all others in it: they may be gone, and nothing can be
	// started there, before it is.
	const exiting = 0x4
	return ticks, fields[state] == "Z" || fields[state] == "X" || set&exiting != 0, err
}

// paused reports that the first process of the sandbox's process namespace lives.
func (e entry) paused() bool {
	start, ended, err := startTime(e.PausePID)
	if err != nil || start != e.PauseStart {
		return false
	}
	if ended {
		_, _ = syscall.Wait4(e.PausePID, nil, syscall.WNOHANG, nil) // heard, if this process is the parent
	}
	return !ended
}

// endPause ends it and removes what it had, the directory that says that there is one last.
func (s *Store) endPause(id string) error {
	if _, err := os.Lstat(s.file(id, pauseName)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	e, err := s.readIntent(id)
	if err != nil {
		return err
	}
	tree, err := cgroup.Open()
	if err != nil {
		return err
	}
	if err := tree.Remove(e.PauseCgroup); err != nil {
		return err
	}
	s.step("pause ended")
	if err := unpin(s.file(id, pinPID)); err != nil {
		return err
	}
	s.step("pid removed")
	return removeFile(s.file(id, pauseName))
}
