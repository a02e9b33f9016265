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

// owner is who writes into a container. All IDs are as this machine sees them.
type owner struct {
	// uid, gid and groups are those of the container's process; rootUID and rootGID are 0 in its user namespace.
	uid, gid, rootUID, rootGID int
	groups                     []uint32
	uids, gids                 []idRange
}

// idRange is a line of /proc/PID/uid_map: count IDs that begin at inside in the user namespace and at outside here.
type idRange struct{ inside, outside, count int }

// readOwner reads what /proc has of a process; at returns the path of one of its files.
func readOwner(at func(name string) string) (o owner, err error) {
	if o.uids, err = readRanges(at("uid_map")); err != nil {
		return o, err
	}
	if o.gids, err = readRanges(at("gid_map")); err != nil {
		return o, err
	}
	status, err := os.ReadFile(at("status"))
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
	o.rootUID, o.rootGID = outside(o.uids, 0, o.uid), outside(o.gids, 0, o.gid)
	return o, nil
}

func readRanges(file string) (all []idRange, err error) {
	text, err := os.ReadFile(file)
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
	return otherwise
}

// root reports that the process is root in its user namespace.
func (o owner) root() bool { return o.uid == o.rootUID }

// of returns who owns the copy of a file that root of the container writes: the same user there, as with tar, or root.
func (o owner) of(uid, gid uint32, preserve bool) (int, int) {
	if !preserve {
		return o.rootUID, o.rootGID
	}
	return outside(o.uids, int(uid), o.rootUID), outside(o.gids, int(gid), o.rootGID)
}

// writer runs functions on a thread that has the rights of the container's process in file systems: of root in its user
// namespace everything, of another user no more than the kernel lets that user do. Nothing has to be given to that user
// afterwards, by a name that the container may have given to another file meanwhile.
type writer struct{ calls chan func() }

// write starts a writer. It ends with stop.
func (o owner) write() (w writer, err error) {
	w = writer{make(chan func())}
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

// do runs f and waits for it.
func (w writer) do(f func() error) (err error) {
	done := make(chan struct{})
	w.calls <- func() {
		err = f()
		close(done)
	}
	<-done
	return err
}

// become gives this thread the rights of a writer.
func (o owner) become() error {
	if o.rootUID == 0 && o.root() {
		return nil
	}
	groups, uid, gid := o.groups, o.uid, o.gid
	if o.root() {
		gid = o.rootGID
	}
	groups = slices.Concat(groups, []uint32{uint32(gid)})
	// Not the functions of package syscall: they change all threads of the process.
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	if errno != 0 {
		return errno
	}
	if err := syscall.Setfsgid(gid); err != nil {
		return err
	}
	if err := syscall.Setfsuid(uid); err != nil {
		return err
	}
	if !o.root() {
		return nil
	}
	// The kernel has taken those capabilities that are about files from the effective ones.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i].Effective = data[i].Permitted
	}
	return unix.Capset(&header, &data[0])
}
