package images

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/host"
)

// mostAccounts is how long an image's /etc/passwd and /etc/group may be, as containerd has it.
const mostAccounts = 10 << 20

// accounts are the users and groups of the image that is shown at a directory.
type accounts string

// read reads one of the image's files; a missing one is empty. Links are followed as in a container of it.
func (a accounts) read(name string) (io.Reader, error) {
	text, err := host.ReadRegular(string(a), name, host.LinksInRoot, mostAccounts)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil { // the path where it is shown tells nobody anything
		return nil, fmt.Errorf("reading /%s of the image: %w", name, errors.Unwrap(err))
	}
	return bytes.NewReader(text), nil
}

// find returns who name, a user or user:group of names or numbers, stands for. What is a number need not be among the
// accounts; a user without a group has the one of its account, else root's; it is among the groups too.
func (a accounts) find(name string) (specs.User, error) {
	owner, group, grouped := strings.Cut(name, ":")
	found, err := a.user(owner)
	if err != nil {
		return specs.User{}, err
	}
	out := specs.User{UID: uint32(found.Uid), GID: uint32(found.Gid)}
	if grouped {
		if out.GID, err = a.group(group); err != nil {
			return specs.User{}, err
		}
	}
	more, err := a.groupsOf(found.Name)
	if !slices.Contains(more, out.GID) {
		more = append([]uint32{out.GID}, more...)
	}
	out.AdditionalGids = more
	return out, err
}

// user finds a user by its name or number.
func (a accounts) user(name string) (user.User, error) {
	uid, numeric, err := number(name)
	if err != nil {
		return user.User{}, fmt.Errorf("user %w", err)
	}
	passwd, err := a.read("etc/passwd")
	if err != nil {
		return user.User{}, err
	}
	found, err := user.ParsePasswdFilter(passwd, func(u user.User) bool {
		return numeric && u.Uid == uid || !numeric && u.Name == name
	})
	switch {
	case err != nil:
		return user.User{}, fmt.Errorf("reading /etc/passwd of the image: %w", err)
	case len(found) > 0:
		return found[0], nil
	case numeric:
		return user.User{Uid: uid}, nil
	}
	return user.User{}, fmt.Errorf("no user %q in /etc/passwd of the image", name)
}

// group finds a group by its name or number.
func (a accounts) group(name string) (uint32, error) {
	gid, numeric, err := number(name)
	if err != nil {
		return 0, fmt.Errorf("group %w", err)
	}
	if numeric {
		return uint32(gid), nil
	}
	found, err := a.groups(func(g user.Group) bool { return g.Name == name })
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no group %q in /etc/group of the image", name)
	}
	if err != nil {
		return 0, err
	}
	return found[0], nil
}

// groupsOf are the groups that a user is listed in, but for the one of its own name.
func (a accounts) groupsOf(name string) ([]uint32, error) {
	if name == "" {
		return nil, nil
	}
	return a.groups(func(g user.Group) bool { return g.Name != name && slices.Contains(g.List, name) })
}

func (a accounts) groups(wanted func(user.Group) bool) ([]uint32, error) {
	text, err := a.read("etc/group")
	if err != nil {
		return nil, err
	}
	found, err := user.ParseGroupFilter(text, wanted)
	if err != nil {
		return nil, fmt.Errorf("reading /etc/group of the image: %w", err)
	}
	var gids []uint32
	for _, g := range found {
		gids = append(gids, uint32(g.Gid))
	}
	return gids, nil
}

// number reads a user's or a group's number. runc has none beyond 31 bits.
func number(text string) (n int, numeric bool, err error) {
	n, err = strconv.Atoi(text)
	if err == nil && n >= 0 && n <= math.MaxInt32 {
		return n, true, nil
	}
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return 0, false, fmt.Errorf("%s is not between 0 and %d", text, math.MaxInt32)
	}
	return 0, false, nil
}
