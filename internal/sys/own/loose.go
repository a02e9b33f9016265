package own

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// LooseError reports that a user other than root and podrun's own user can change what podrun runs
// as root.
type LooseError struct {
	// Path is a file, or a directory or symbolic link on the path to it.
	Path string
	// Why says what other users may do, and the command that ends it.
	Why string
	// Owned is set if another user owns Path; an owner may change everything.
	Owned bool
	// ByGroup is set if only members of a group other than root's may write Path.
	ByGroup bool
}

func (e *LooseError) Error() string { return e.Path + ": " + e.Why }

// Loose returns a LooseError if a user other than root and podrun's own user owns the file or
// directory or may write it; else nil. A sticky directory, in which users cannot replace each
// other's files, counts only if newFilesMatter.
func Loose(path string, info fs.FileInfo, newFilesMatter bool) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && !isTrusted(st.Uid) {
		return &LooseError{Path: path, Why: fmt.Sprintf("is owned by user %d; chown root it", st.Uid), Owned: true}
	}
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 || info.IsDir() && mode&fs.ModeSticky != 0 && !newFilesMatter {
		return nil
	}
	const groups, all = 0o020, 0o002
	who, byGroup := "", false
	switch {
	case mode&all != 0:
		who = "every user"
	case mode&groups != 0: // with an access control list these bits are its mask: no entry grants more
		who, byGroup = listed(path)
		if ok && !isTrustedGroup(st.Gid) && (who == "" || byGroup) {
			who, byGroup = fmt.Sprintf("group %d", st.Gid), true
		}
	}
	if who == "" {
		return nil
	}
	return &LooseError{
		Path:    path,
		Why:     fmt.Sprintf("can be written by %s (mode %04o); chmod go-w it", who, mode.Perm()),
		ByGroup: byGroup,
	}
}

// isTrusted reports whether uid is root, which may change everything anyway, or podrun's own user,
// which may change podrun itself, or no user at all here.
func isTrusted(uid uint32) bool {
	return uid == 0 || int(uid) == os.Geteuid() || unmapped(uid, "/proc/self/uid_map")
}

// isTrustedGroup is isTrusted of a group. A user other than root has usually a group of their own,
// which may write what they make.
func isTrustedGroup(gid uint32) bool {
	return gid == 0 || os.Geteuid() != 0 && int(gid) == os.Getegid() || unmapped(gid, "/proc/self/gid_map")
}

// overflowID is what the kernel shows for a user or group without a number in the user namespace.
const overflowID = 65534

// unmapped reports that id stands for users or groups outside of podrun's user namespace: nobody
// inside has this number. They are those of the machine around a container, which decides what runs
// in it. If somebody inside can have it, as everywhere outside of user namespaces, id is theirs.
func unmapped(id uint32, mapFile string) bool {
	if id != overflowID {
		return false
	}
	text, err := os.ReadFile(mapFile)
	return err == nil && !covers(string(text), id)
}

// covers reports whether a map of a user namespace has a user or group of this number inside.
func covers(text string, id uint32) bool {
	for line := range strings.Lines(text) {
		var first, outside, count uint32
		if n, _ := fmt.Sscan(line, &first, &outside, &count); n < 3 || id >= first && id-first < count {
			return true
		}
	}
	return false
}

// listed returns a text for the user or group, other than the file's owner and group, that may
// write the file by its POSIX access control list; "" if there is none.
func listed(path string) (who string, byGroup bool) {
	const header, size, write, user, group = 4, 8, 2, 0x02, 0x08 // struct posix_acl_xattr_entry: tag, permissions, ID
	acl := make([]byte, 64<<10)                                  // the size limit of an extended attribute
	n, err := unix.Getxattr(path, "system.posix_acl_access", acl)
	if err != nil {
		return "", false // there is none
	}
	for at := header; at+size <= n; at += size {
		tag, may, id := binary.LittleEndian.Uint16(acl[at:]), acl[at+2], binary.LittleEndian.Uint32(acl[at+4:])
		switch {
		case may&write == 0:
		case tag == user && !isTrusted(id):
			return fmt.Sprintf("user %d by its access control list", id), false
		case tag == group && !isTrustedGroup(id):
			who, byGroup = fmt.Sprintf("group %d by its access control list", id), true
		}
	}
	return who, byGroup
}
