// Package accounts finds users and groups in the account files of an image, /etc/passwd and
// /etc/group. The image is untrusted: its files are read as regular files inside its root
// filesystem only, up to a size, and a number that runc does not accept is an error.
//
// It does not mount anything. Begin reading at Find.
package accounts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// mostAccounts is the maximum size in bytes of an image's /etc/passwd or /etc/group, as in
// containerd.
const mostAccounts = 10 << 20

// User is a user of an image.
type User struct {
	specs.User
	// GroupEntries is the number of lines of the image's /etc/group.
	GroupEntries int
}

// accounts are the users and groups of the image that is mounted at this directory.
type accounts string

// read returns the content of one of the image's files, empty if the file does not exist. Symbolic
// links are resolved as in a container of the image.
func (a accounts) read(name string) ([]byte, error) {
	text, err := sys.ReadRegular(string(a), name, sys.LinksInRoot, mostAccounts)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil { // without the path of the temporary mount, which has no meaning for a user
		return nil, fmt.Errorf("reading /%s of the image: %w", name, errors.Unwrap(err))
	}
	return text, nil
}

// account is a user's entry in /etc/passwd. Without a name there is no entry.
type account struct {
	name     string
	uid, gid uint32
}

// Find returns the user for name in the image that is mounted at root. name has the form user or
// user:group, each a name or a number. A number need not be in /etc/passwd or /etc/group. Without a
// group the user has the primary group of its entry, or else root's. The primary group is among the
// additional groups too. A user in more than pod.MaxGroups groups is an error.
func Find(root, name string) (User, error) {
	a := accounts(root)
	owner, group, grouped := strings.Cut(name, ":")
	found, err := a.user(owner)
	if err != nil {
		return User{}, err
	}
	out := User{User: specs.User{UID: found.uid, GID: found.gid}}
	if grouped {
		if out.GID, err = a.group(group); err != nil {
			return User{}, err
		}
	}
	// The file is read for a user without an entry too, because runc reads it for any.
	text, err := a.read("etc/group")
	if err != nil {
		return User{}, err
	}
	out.GroupEntries = bytes.Count(text, []byte("\n")) + 1
	more, err := a.groupsOf(found.name)
	if err != nil {
		return User{}, err
	}
	if !slices.Contains(more, out.GID) {
		more = append([]uint32{out.GID}, more...)
	}
	if len(more) > pod.MaxGroups {
		return User{}, fmt.Errorf("/etc/group of the image has the user in %d groups; the maximum is %d",
			len(more), pod.MaxGroups)
	}
	out.AdditionalGids = more
	return out, nil
}

// user returns the entry of a user by name or number. An entry without a group number has root's
// group.
func (a accounts) user(name string) (account, error) {
	uid, numeric, err := number(name)
	if err != nil {
		return account{}, fmt.Errorf("user %w", err)
	}
	var found *account
	err = a.each("etc/passwd", func(fields []string) {
		id, known := idIn(fields, 2)
		group, grouped := idIn(fields, 3)
		if !grouped && len(fields) > 3 && fields[3] != "" {
			return
		}
		if found == nil && known && (numeric && id == uid || !numeric && fields[0] == name) {
			found = &account{name: fields[0], uid: id, gid: group}
		}
	})
	switch {
	case err != nil:
		return account{}, err
	case found != nil:
		return *found, nil
	case numeric:
		return account{uid: uid}, nil
	}
	return account{}, fmt.Errorf("no user %q with a number between 0 and %d in /etc/passwd of the image",
		name, math.MaxInt32)
}

// group returns the number of a group by name or number.
func (a accounts) group(name string) (uint32, error) {
	gid, numeric, err := number(name)
	if err != nil {
		return 0, fmt.Errorf("group %w", err)
	}
	if numeric {
		return gid, nil
	}
	found, err := a.groups(func(fields []string) bool { return fields[0] == name })
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no group %q with a number between 0 and %d in /etc/group of the image", name, math.MaxInt32)
	}
	if err != nil {
		return 0, err
	}
	return found[0], nil
}

// groupsOf returns the groups of which the user is a member, except the group of the user's own
// name.
func (a accounts) groupsOf(name string) ([]uint32, error) {
	if name == "" {
		return nil, nil
	}
	return a.groups(func(fields []string) bool {
		return fields[0] != name && len(fields) > 3 && slices.Contains(strings.Split(fields[3], ","), name)
	})
}

// groups returns the numbers of the groups in /etc/group for which wanted returns true.
func (a accounts) groups(wanted func(fields []string) bool) ([]uint32, error) {
	var gids []uint32
	err := a.each("etc/group", func(fields []string) {
		if gid, known := idIn(fields, 2); known && wanted(fields) {
			gids = append(gids, gid)
		}
	})
	return gids, err
}

// each calls f with the fields of each non-empty line of one of the image's files. The library for
// such files is not used, because it reads a field that is not a number as 0, which is root, and a
// number that is too large as another one.
func (a accounts) each(file string, f func(fields []string)) error {
	text, err := a.read(file)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			f(strings.Split(line, ":"))
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading /%s of the image: %w", file, err)
	}
	return nil
}

// idIn returns the number in a field; false if there is none that a user or a group can have.
func idIn(fields []string, i int) (uint32, bool) {
	if len(fields) <= i {
		return 0, false
	}
	id, numeric, err := number(fields[i])
	return id, numeric && err == nil
}

// number parses the number of a user or a group. runc supports 31 bits. A number with a sign is an
// error: other programs read "-0" as a name.
func number(text string) (id uint32, numeric bool, err error) {
	n, err := strconv.Atoi(text)
	if err == nil && n >= 0 && n <= math.MaxInt32 && !strings.ContainsAny(text, "+-") {
		return uint32(n), true, nil
	}
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return 0, false, fmt.Errorf("%s is not between 0 and %d", text, math.MaxInt32)
	}
	return 0, false, nil
}
