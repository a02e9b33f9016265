package volume

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	v1 "k8s.io/api/core/v1"
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
// OnRootMismatch, nothing where its own directory is right. Nothing outside is reached by links.
func giveTo(root *os.Root, p *v1.Pod) error {
	group := fsGroup(p)
	if group == nil {
		return nil
	}
	if policy := p.Spec.SecurityContext.FSGroupChangePolicy; policy != nil && *policy == v1.FSGroupChangeOnRootMismatch {
		info, err := root.Stat(".")
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Gid) == *group && info.Mode()&groupDir == groupDir {
			return nil
		}
	}
	err := fs.WalkDir(root.FS(), ".", func(at string, d fs.DirEntry, err error) error {
		if err == nil && at == "." {
			return nil // last, so that it tells whether all is done
		}
		return giveOne(root, at, int(*group), err)
	})
	if err != nil {
		return err
	}
	return giveOne(root, ".", int(*group), nil)
}

// giveOne gives one file to the group. One that went away meanwhile needs nothing.
func giveOne(root *os.Root, at string, group int, err error) error {
	var info fs.FileInfo
	if err == nil {
		info, err = root.Lstat(at)
	}
	if err == nil {
		err = root.Lchown(at, -1, group)
	}
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		mode := groupFile
		if info.IsDir() {
			mode = groupDir
		}
		err = root.Chmod(at, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)|mode)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
