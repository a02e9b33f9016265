package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys"
)

// fsGroup is the group that the pod's volumes belong to; nil: none.
func fsGroup(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// What the group may do with a volume's files and directories; what comes into a directory is the group's.
const (
	groupFile = fs.FileMode(0o660)
	groupDir  = fs.FileMode(0o770) | fs.ModeSetgid
)

// giveTo gives a volume to the pod's group, as the kubelet does: all in it, or, with the policy
// OnRootMismatch, nothing where its own directory is right. Nothing outside is reached by links, and what is mounted
// in it is not the volume's.
func giveTo(ctx context.Context, volume *os.File, p *v1.Pod) error {
	group := fsGroup(p)
	if group == nil {
		return nil
	}
	own := int(volume.Fd())
	if policy := p.Spec.SecurityContext.FSGroupChangePolicy; policy != nil && *policy == v1.FSGroupChangeOnRootMismatch {
		info, err := volume.Stat()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Gid) == *group && info.Mode()&groupDir == groupDir {
			return nil
		}
	}
	err := sys.WalkTree(ctx, volume, sys.TreeVisitor{
		Enter: func(dir int) error { return giveInode(dir, int(*group)) },
		File: func(dir int, name string) error {
			file, err := sys.OpenInode(dir, name)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it went away meanwhile
			}
			if err != nil {
				return err
			}
			defer unix.Close(file)
			return giveInode(file, int(*group))
		},
		Unopened: func(_ string, err error) error {
			if errors.Is(err, unix.EXDEV) {
				return nil
			}
			return err
		},
	})
	if err != nil {
		return err
	}
	return giveInode(own, int(*group)) // last, so that it tells whether all is done
}

// giveInode gives what a descriptor is of to the group.
func giveInode(fd, group int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := unix.Fchownat(fd, "", -1, group, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	mode := uint32(groupFile)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK: // it has no mode
		return nil
	case unix.S_IFDIR:
		mode = uint32(groupDir.Perm()) | unix.S_ISGID
	}
	return unix.Chmod(sys.FDPath(fd), st.Mode&0o7777|mode)
}
