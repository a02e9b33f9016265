package file

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

	"podrun.io/podrun/internal/sys/errtext"
)

// LooseError reports that a user other than root and podrun's own user can change what podrun runs
// as root.
type LooseError struct {
	// Path is the manifest, or a directory or symbolic link on the path to it.
	Path string
	// Why says what other users may do, and the command that ends it.
	Why string
	// Owned is set if another user owns Path; an owner may change everything.
	Owned bool
}

func (e *LooseError) Error() string { return e.Path + ": " + e.Why }

// loose returns a LooseError if a user other than root and podrun's own user owns the file or
// directory or may write it; else nil. A sticky directory, in which users cannot replace each
// other's files, counts only if newFilesMatter.
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
	case mode&byGroup == 0: // with an access control list these bits are its mask: no entry grants more
	case ok && st.Gid != 0:
		who = fmt.Sprintf("group %d", st.Gid)
	default:
		who = listed(path)
	}
	if who == "" {
		return nil
	}
	return &LooseError{
		Path: path,
		Why:  fmt.Sprintf("can be written by %s (mode %04o); chmod go-w it", who, mode.Perm()),
	}
}

// isTrusted reports whether uid is root, which may change everything anyway, or podrun's own user,
// which may change podrun itself.
func isTrusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// listed returns a text for the user or group, other than the file's owner and group, that may
// write the file by its POSIX access control list; "" if there is none.
func listed(path string) string {
	const header, size, write, user, group = 4, 8, 2, 0x02, 0x08 // struct posix_acl_xattr_entry: tag, permissions, ID
	acl := make([]byte, 64<<10)                                  // the size limit of an extended attribute
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

// maxLinks is the number of symbolic links that the kernel follows in a path.
const maxLinks = 40

// looseOnWay returns a LooseError for each directory and link on the way from / to path by which
// other users could redirect podrun to another manifest, in path order: directories in which they
// may replace files of root, and directories and links that they own. It follows symbolic links,
// and checks path itself only if it is a link. It stops at a component that cannot be read; reading
// the manifest reports that error.
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
			at = filepath.Dir(at) // correct because at contains no symbolic link
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

// looseDirs returns a LooseError for each directory in which other users could add or replace a
// manifest, and for each symbolic link that they could change: the directory of the manifests, and
// all directories and links on the way to it and to the targets of links in it.
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

// distinct retains only the first LooseError of each path.
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

// warns reports whether err is worth a warning about a manifest that is used nevertheless. A
// foreign owner is worth one only if the path is lasting: a path that is run once is usually in a
// user's working copy, which that user owns.
func (s *scanner) warns(err error) bool {
	var l *LooseError
	return err != nil && !s.strict && (s.lasting || !errors.As(err, &l) || !l.Owned)
}

// sameErrors reports whether two lists have the same error texts.
func sameErrors(a, b []error) bool {
	return slices.EqualFunc(a, b, errtext.Same)
}
