package cp

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// owner is who owns what is written into a container.
type owner struct {
	// uid and gid are the user and group of the container's process, rootUID and rootGID those that are 0 in its
	// user namespace. All are as this machine sees them.
	uid, gid, rootUID, rootGID int
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
	var real int
	for line := range strings.SplitSeq(string(status), "\n") {
		if rest, is := strings.CutPrefix(line, "Uid:"); is {
			_, err = fmt.Sscan(rest, &real, &o.uid)
		} else if rest, is := strings.CutPrefix(line, "Gid:"); is && err == nil {
			_, err = fmt.Sscan(rest, &real, &o.gid)
		}
	}
	o.rootUID, o.rootGID = outside(o.uids, 0, o.uid), outside(o.gids, 0, o.gid)
	return o, err
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

// of returns who owns the copy of a file: as with tar in the container, its owner if the process is root and
// preserve says so, else the process.
func (o owner) of(uid, gid uint32, preserve bool) (int, int) {
	if !preserve || o.uid != o.rootUID {
		return o.uid, o.gid
	}
	return outside(o.uids, int(uid), o.rootUID), outside(o.gids, int(gid), o.rootGID)
}

// ofInfo is of for a file of this machine.
func (o owner) ofInfo(info os.FileInfo, preserve bool) (int, int) {
	st := info.Sys().(*syscall.Stat_t)
	return o.of(st.Uid, st.Gid, preserve)
}

// as calls f on a thread of its own that creates files as root of the container's user namespace, with all
// capabilities: files of another owner cannot be created on a mount whose IDs are mapped.
func (o owner) as(f func() error) error {
	if o.rootUID == 0 && o.rootGID == 0 {
		return f()
	}
	return sys.OnOwnThread(func() error {
		if err := o.become(); err != nil {
			return fmt.Errorf("becoming user %d of the container: %w", o.rootUID, err)
		}
		return f()
	})
}

func (o owner) become() error {
	if err := syscall.Setfsgid(o.rootGID); err != nil {
		return err
	}
	if err := syscall.Setfsuid(o.rootUID); err != nil {
		return err
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
