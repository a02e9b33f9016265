package shim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// prefix begins the name of each shim's program.
const prefix = "containerd-shim-"

// Any is a filter for Kill that selects every shim.
func Any(int) bool { return true }

// Idle is a filter for Kill that selects a shim without running child processes.
func Idle(pid int) bool { return children(pid) == 0 }

// Kill kills the shims that the filter which selects (such as Any or Idle), among those that were
// started with all of the given flags; flags are pairs of a flag and its value. With the flag -address only those are
// meant whose containerd has the same socket: a podrun in a container has the same paths as one outside, which sees its
// processes. A shim that has ended is no error.
func Kill(which func(pid int) bool, flags ...string) error {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	own := ours()
	var failed []error
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			return err
		}
		if !isShim(argsOf(pid, own), flags) || !which(pid) || !sharesSocket(pid, flags) {
			continue // it has ended, or is another program
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Of returns the process ID of the shim that a process descends from, 0 if there is none, and
// whether that shim was started with all of the given flags, which have the meaning that they have for Kill. A
// process in another container, or of another user, is a shim if its program has the name of one; it has other flags
// then.
func Of(pid int, flags ...string) (shim int, with bool) {
	own := ours()
	for pid > 1 {
		parent, err := sys.Parent(pid)
		if err != nil {
			return 0, false
		}
		args := argsOf(parent, own)
		if isShim(args, nil) || len(args) == 0 && isNamed(parent) {
			return parent, isShim(args, flags) && sharesSocket(parent, flags)
		}
		pid = parent
	}
	return 0, false
}

// sharesSocket reports whether the flag -address, if it is among flags, names the same socket for this process and for
// the one with the given ID. If neither has it any more, they share it if they have the same root.
func sharesSocket(pid int, flags []string) bool {
	i := slices.Index(flags, "-address")
	if i < 0 {
		return true
	}
	ours, here := statIn("/", flags[i+1])
	theirs, there := statIn(proc(pid, "root"), flags[i+1])
	if errors.Is(here, fs.ErrNotExist) && errors.Is(there, fs.ErrNotExist) {
		ours, here = os.Stat("/")
		theirs, there = os.Stat(proc(pid, "root"))
	}
	return here == nil && there == nil && os.SameFile(ours, theirs)
}

// statIn is stat of a path below a root directory, where absolute symbolic links stay below it too.
func statIn(root, path string) (os.FileInfo, error) {
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := sys.OpenBeneath(dir, path, sys.LinksInRoot, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// children returns the number of children of a process that are not zombies.
func children(pid int) (n int) {
	lists, err := filepath.Glob(proc(pid, "task/*/children"))
	if err != nil {
		return 0
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(child)
			if err != nil {
				continue
			}
			if stat, err := sys.ProcessStat(pid); err == nil && stat[0] != "Z" {
				n++
			}
		}
	}
	return n
}

// isShim reports whether a command line is a shim's with all of the given flags, which are pairs of
// a flag and its value.
func isShim(args, flags []string) bool {
	for pair := range slices.Chunk(flags, 2) {
		i := slices.Index(args, pair[0])
		if i < 0 || i+1 >= len(args) || args[i+1] != pair[1] {
			return false
		}
	}
	return len(args) > 0 && strings.HasPrefix(filepath.Base(args[0]), prefix)
}
