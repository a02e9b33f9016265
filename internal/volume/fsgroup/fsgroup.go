// Package fsgroup gives volumes to the group of their pod, by its securityContext.fsGroup.
package fsgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/patience"
)

// Of returns the group that the pod's volumes belong to; nil: none.
func Of(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// Permissions of the group on a volume's files and directories; what is created in a directory
// belongs to the group too.
const (
	groupFile = fs.FileMode(0o660)
	groupDir  = fs.FileMode(0o770) | fs.ModeSetgid
)

// Give gives a volume to the pod's group, as the kubelet does: everything in it or, with the
// policy OnRootMismatch, nothing if the volume's own directory has the right group and mode.
// Symbolic links lead nowhere outside, and what is mounted in the volume is left as it is. It gives what it can: a
// *RefusedError says that the file system has refused some of it.
func Give(ctx context.Context, volume *os.File, p *v1.Pod) error {
	group := Of(p)
	if group == nil {
		return nil
	}
	own := int(volume.Fd())
	if policy := p.Spec.SecurityContext.FSGroupChangePolicy; policy != nil &&
		*policy == v1.FSGroupChangeOnRootMismatch {
		info, err := volume.Stat()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Gid) == *group && info.Mode()&groupDir == groupDir {
			return nil
		}
	}
	var refused RefusedError
	give := func(fd int) error { return refused.collect(giveInode(fd, int(*group))) }
	err := sys.WalkTree(ctx, volume, sys.TreeVisitor{
		Enter: func(dir int) error {
			patience.Progress(ctx)
			return give(dir)
		},
		File: func(dir int, name string) error {
			patience.Progress(ctx) // a large volume takes its time
			file, err := sys.OpenInode(dir, name)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed in the meantime
			}
			if err != nil {
				return refused.collect(err)
			}
			defer unix.Close(file)
			return give(file)
		},
		Unopened: func(_ string, err error) error {
			if errors.Is(err, unix.EXDEV) {
				return nil
			}
			return refused.collect(err)
		},
	})
	if err != nil {
		return err
	}
	if err := give(own); err != nil || refused.Err == nil { // last, so that it shows whether all is done
		return err
	}
	return &refused
}

// RefusedError says that a file system does not let its files be given to a group: it is read-only, or another
// machine's, or they are immutable. Others were given.
type RefusedError struct {
	Count int   // of files and directories
	Err   error // of the first one
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%d refused, the first: %v", e.Count, e.Err)
}

// Unwrap returns the error of the first file.
func (e *RefusedError) Unwrap() error { return e.Err }

// collect returns err, unless it is a refusal.
func (e *RefusedError) collect(err error) error {
	for _, refusal := range []error{unix.EPERM, unix.EACCES, unix.EROFS, unix.EOPNOTSUPP, unix.EINVAL} {
		if errors.Is(err, refusal) {
			e.Count++
			e.Err = cmp.Or(e.Err, err)
			return nil
		}
	}
	return err
}

// giveInode gives the file or directory of a descriptor to the group. Unlike the kubelet it clears the setuid and
// setgid bits of files, as chown does: a process that made a program for its own group must not get the group of
// another pod that has the claim.
func giveInode(fd, group int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	mode := st.Mode&0o777 | uint32(groupFile)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK: // has no mode
		mode = st.Mode & 0o7777
	case unix.S_IFDIR:
		mode = st.Mode&0o7777 | uint32(groupDir.Perm()) | unix.S_ISGID
	}
	if int(st.Gid) == group && st.Mode&0o7777 == mode {
		return nil // an attempt after one that was cut off has less to do
	}
	err := unix.Fchownat(fd, "", -1, group, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return err
	}
	return unix.Chmod(sys.FDPath(fd), mode)
}
