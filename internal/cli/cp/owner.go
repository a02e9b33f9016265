package cp

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// owner is who writes into a container: the container's process, with its rights and no more. All IDs are as this
// machine sees them.
type owner struct {
	uid, gid int
	groups   []uint32
	// capabilities are the effective ones, a bit each. They are those in the user namespace of the process, which need
	// not be its pod's: any process may make one of its own, in which it has all capabilities. uids and gids are the
	// IDs that this namespace has; nil if it is podrun's own, which the kernel checks.
	capabilities uint64
	uids, gids   []idRange
}

// idRange is a line of /proc/PID/uid_map: count IDs that begin at inside in the user namespace and at outside here.
type idRange struct{ inside, outside, count int }

// readOwner reads what /proc has of a process; at returns the path of one of its files.
func readOwner(at func(name string) string) (o owner, err error) {
	theirs, err := os.Readlink(at("ns/user"))
	if err != nil {
		return o, err
	}
	if own, err := os.Readlink("/proc/self/ns/user"); err != nil {
		return o, err
	} else if own != theirs {
		if o.uids, err = readRanges(at("uid_map")); err != nil {
			return o, err
		}
		if o.gids, err = readRanges(at("gid_map")); err != nil {
			return o, err
		}
	}
	status, err := os.ReadFile(at("status")) // trusted: the kernel's
	if err != nil {
		return o, err
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		var real int
		name, rest, _ := strings.Cut(line, ":")
		switch name {
		case "Uid":
			_, err = fmt.Sscan(rest, &real, &o.uid)
		case "Gid":
			_, err = fmt.Sscan(rest, &real, &o.gid)
		case "CapEff":
			_, err = fmt.Sscanf(strings.TrimSpace(rest), "%x", &o.capabilities)
		case "Groups":
			for group := range strings.FieldsSeq(rest) {
				var id uint32
				if _, err = fmt.Sscan(group, &id); err == nil {
					o.groups = append(o.groups, id)
				}
			}
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

func readRanges(file string) (all []idRange, err error) {
	text, err := os.ReadFile(file) // trusted: the kernel's
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		var one idRange
		if err == nil {
			_, err = fmt.Sscan(line, &one.inside, &one.outside, &one.count)
		}
		all = append(all, one)
	}
	return all, err
}

// outside returns the ID on this machine that an ID of the user namespace is, or otherwise if it is none.
func outside(all []idRange, id, otherwise int) int {
	for _, r := range all {
		if id >= r.inside && id-r.inside < r.count {
			return r.outside + id - r.inside
		}
	}
	if all == nil {
		return id
	}
	return otherwise
}

// has reports that an ID of this machine is one of the user namespace.
func has(all []idRange, id int) bool {
	return all == nil || slices.ContainsFunc(all, func(r idRange) bool {
		return id >= r.outside && id-r.outside < r.count
	})
}

// of returns who owns the copy of a file if its owner is preserved: the same user in the container, as with tar.
func (o owner) of(uid, gid uint32) (int, int) {
	return outside(o.uids, int(uid), o.uid), outside(o.gids, int(gid), o.gid)
}

// over returns the capabilities that the process has over a file, by the kernel's rule: those of its user namespace,
// if that has the file's owner and its group.
func (o owner) over(fd int) uint64 {
	if o.uids == nil {
		return o.capabilities
	}
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil || !has(o.uids, int(st.Uid)) || !has(o.gids, int(st.Gid)) {
		return 0
	}
	return o.capabilities
}

// writer runs functions on a thread that has the rights of the container's process in file systems, so that the kernel
// lets it do what that process may, and no more. Nothing has to be given to that user afterwards, by a name that the
// container may have given to another file meanwhile.
type writer struct {
	owner
	calls chan func()
}

// write starts a writer. It ends with stop.
func (o owner) write() (w writer, err error) {
	w = writer{o, make(chan func())}
	ready := make(chan error)
	go func() {
		_ = sys.OnOwnThread(func() error {
			err := o.become()
			ready <- err
			for f := range w.calls {
				f()
			}
			return err
		})
	}()
	if err := <-ready; err != nil {
		close(w.calls)
		return w, fmt.Errorf("becoming the container's user %d: %w", o.uid, err)
	}
	return w, nil
}

func (w writer) stop() { close(w.calls) }

// do runs f and waits for it. f has the capabilities over the file or directory that it changes, whose descriptor
// is fd; with -1 only those over all files.
func (w writer) do(fd int, f func() error) (err error) {
	done := make(chan struct{})
	w.calls <- func() {
		if err = setEffective(w.over(fd)); err == nil {
			err = f()
		}
		close(done)
	}
	<-done
	return err
}

// become gives this thread the rights of a writer.
func (o owner) become() error {
	groups := slices.Concat(o.groups, []uint32{uint32(o.gid)})
	// Not the functions of package syscall: they change all threads of the process.
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	if errno != 0 {
		return errno
	}
	if err := syscall.Setfsgid(o.gid); err != nil {
		return err
	}
	if err := syscall.Setfsuid(o.uid); err != nil {
		return err
	}
	return setEffective(0)
}

// setEffective sets the capabilities of this thread, as far as podrun has them. They stay permitted.
func setEffective(capabilities uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i].Effective = data[i].Permitted & uint32(capabilities>>(32*i))
	}
	return unix.Capset(&header, &data[0])
}
