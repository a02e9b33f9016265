package filesource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// LooseError says that others than root and podrun's user could change what podrun runs as root.
type LooseError struct {
	// Path is the manifest, or what is on the way to it: a directory, a link.
	Path string
	// Why is what others may do, and how that ends.
	Why string
	// Owned says that it is another's, who may do everything.
	Owned bool
}

func (e *LooseError) Error() string { return e.Path + ": " + e.Why }

// loose reports a file or directory that others than root and podrun's user own or may write; nil if none may.
// A directory in which nobody may touch another's files counts only where new ones matter.
func loose(path string, info fs.FileInfo, newFilesMatter bool) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && !isTrusted(st.Uid) {
		return &LooseError{Path: path, Why: fmt.Sprintf("is owned by user %d; chown root it", st.Uid), Owned: true}
	}
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 || info.IsDir() && mode&fs.ModeSticky != 0 && !newFilesMatter {
		return nil
	}
	const byGroup, byAll = 0o020, 0o002
	who := ""
	switch {
	case mode&byAll != 0:
		who = "every user"
	case mode&byGroup == 0: // no access control list gives more than that
	case ok && st.Gid != 0:
		who = fmt.Sprintf("group %d", st.Gid)
	default:
		who = listed(path)
	}
	if who == "" {
		return nil
	}
	return &LooseError{Path: path, Why: fmt.Sprintf("can be written by %s (mode %04o); chmod go-w it", who, mode.Perm())}
}

// isTrusted: root may change everything, and podrun's own user podrun itself.
func isTrusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// listed is who may write a file by its access control list, apart from its owner and its group; "": nobody.
func listed(path string) string {
	const header, size, write, user, group = 4, 8, 2, 0x02, 0x08 // struct posix_acl_xattr_entry: tag, permissions, ID
	acl := make([]byte, 64<<10)                                  // as much as any attribute has
	n, err := unix.Getxattr(path, "system.posix_acl_access", acl)
	if err != nil {
		return "" // there is none
	}
	for at := header; at+size <= n; at += size {
		tag, may, id := binary.LittleEndian.Uint16(acl[at:]), acl[at+2], binary.LittleEndian.Uint32(acl[at+4:])
		switch {
		case may&write == 0:
		case tag == user && !isTrusted(id):
			return fmt.Sprintf("user %d by its access control list", id)
		case tag == group && id != 0:
			return fmt.Sprintf("group %d by its access control list", id)
		}
	}
	return ""
}

// maxLinks is how many symbolic links the kernel follows in a path.
const maxLinks = 40

// looseOnWay are those of the directories and links on the way from / to path by which others could lead podrun to
// another manifest than what is there, the first ones first: directories in which they may replace what root owns, and
// what they own. What path itself is, unless it is a link, does not count. What is wrong with a path that leads nowhere
// shows elsewhere.
func looseOnWay(path string) []error {
	var all []error
	note := func(at string, info fs.FileInfo) {
		if err := loose(at, info, false); err != nil {
			all = append(all, err)
		}
	}
	at, links := "/", 0
	if info, err := os.Lstat(at); err == nil {
		note(at, info)
	}
	todo := strings.Split(filepath.Clean(path), "/")
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at) // there is no link in at
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			return all
		case info.Mode()&fs.ModeSymlink != 0:
			note(next, info)
			target, err := os.Readlink(next)
			if links++; err != nil || links > maxLinks {
				return all
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			todo = append(strings.Split(target, "/"), todo...)
			continue
		case len(todo) > 0:
			note(next, info)
		}
		at = next
	}
	return all
}

// looseDirs are the directories, of those that manifests are in or are reached by, in which others could put another in
// a manifest's place, and the links that they could change.
func (s *scanner) looseDirs(paths map[string]fs.DirEntry) []error {
	info, err := os.Stat(s.path)
	if err != nil { // optional, or just gone
		return nil
	}
	all := looseOnWay(s.path)
	if info.IsDir() {
		if err := loose(s.path, info, true); err != nil {
			all = append([]error{err}, all...)
		}
	}
	links := []string{}
	for path, e := range paths {
		if e != nil && e.Type()&fs.ModeSymlink != 0 {
			links = append(links, path)
		}
	}
	slices.Sort(links)
	for _, path := range links {
		all = append(all, looseOnWay(path)...)
	}
	return distinct(all)
}

// distinct leaves out what is said already of the same path.
func distinct(errs []error) []error {
	said := map[string]bool{}
	return slices.DeleteFunc(errs, func(err error) bool {
		var l *LooseError
		if !errors.As(err, &l) {
			return false
		}
		before := said[l.Path]
		said[l.Path] = true
		return before
	})
}

// warns reports what is to be said of a manifest that is used all the same. What is not lasting was named by who runs it
// now, out of a working copy of somebody's, as a rule: that it has an owner is no news.
func (s *scanner) warns(err error) bool {
	var l *LooseError
	return err != nil && !s.strict && (s.lasting || !errors.As(err, &l) || !l.Owned)
}

// sameErrors reports that two lists of errors say the same.
func sameErrors(a, b []error) bool {
	return slices.EqualFunc(a, b, func(a, b error) bool { return a.Error() == b.Error() })
}
