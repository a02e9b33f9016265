package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/directory"
	"podrun.io/podrun/internal/volume/fsgroup"
)

// mountSource is the source of podrun's in-memory file systems in the mount table.
const mountSource = "podrun"

// readyEmptyDir creates the directory if it does not exist, and mounts an in-memory file system on
// it if its medium is memory or huge pages.
func (v *Volumes) readyEmptyDir(p *v1.Pod, name string, e *v1.EmptyDirVolumeSource) (string, error) {
	dir, err := v.makeDir(p.UID, layout.KindEmptyDir, name)
	if err != nil {
		return "", fmt.Errorf("emptyDir: %w", err)
	}
	mode := "mode=0777"
	if group := fsgroup.Of(p); group != nil {
		mode = fmt.Sprintf("mode=02777,gid=%d", *group)
		if e.Medium == v1.StorageMediumDefault {
			if err := v.groupDir(p.UID, dir, *group); err != nil {
				return "", fmt.Errorf("emptyDir: %w", err)
			}
		}
	}
	switch {
	case e.Medium == v1.StorageMediumDefault:
	case e.Medium == v1.StorageMediumMemory:
		options := mode
		if size := memorySize(p, e); size > 0 {
			options += ",size=" + strconv.FormatInt(size, 10)
		}
		err = v.mountUnswapped(p.UID, dir, options)
	case strings.HasPrefix(string(e.Medium), string(v1.StorageMediumHugePages)):
		err = v.mountHugePages(p, dir, e, mode)
	default:
		err = fmt.Errorf("medium %q is not supported", e.Medium)
	}
	if err != nil {
		return "", fmt.Errorf("emptyDir: %w", err)
	}
	return dir, nil
}

// memorySize returns the maximum size in bytes of a volume in memory, as in the kubelet: its own
// limit, or that of the pod's cgroup if that is less; 0: neither has one.
func memorySize(p *v1.Pod, e *v1.EmptyDirVolumeSource) int64 {
	var most int64
	if whole := oci.PodResources(p, oci.PodRules{}); whole != nil && whole.Memory != nil {
		most = *whole.Memory.Limit
	}
	if e.SizeLimit == nil || e.SizeLimit.Sign() <= 0 {
		return most
	}
	if own := e.SizeLimit.Value(); most == 0 || own < most {
		return own
	}
	return most
}

// mountHugePages mounts huge pages of the size that the medium names or, if it names none, of the
// one size that the pod requests.
func (v *Volumes) mountHugePages(p *v1.Pod, dir string, e *v1.EmptyDirVolumeSource, mode string) error {
	size, err := pageSize(p, e.Medium)
	if err != nil {
		return err
	}
	options := mode + ",pagesize=" + strconv.FormatInt(size, 10)
	if e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
		options += ",size=" + strconv.FormatInt(e.SizeLimit.Value(), 10)
	}
	return v.mountMemory(p.UID, dir, "hugetlbfs", options)
}

func pageSize(p *v1.Pod, medium v1.StorageMedium) (int64, error) {
	if text, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		size, ok := pod.PageSize(v1.ResourceName(v1.ResourceHugePagesPrefix + text))
		if !ok {
			return 0, fmt.Errorf("medium %q names no size of pages", medium)
		}
		return size, nil
	}
	var found []int64
	for _, c := range pod.AllContainers(p) {
		for name := range c.Resources.Requests {
			if size, ok := pod.PageSize(name); ok && !slices.Contains(found, size) {
				found = append(found, size)
			}
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf(
			"medium %q needs containers that request huge pages of one size, or a size as in HugePages-2Mi", medium)
	}
	return found[0], nil
}

// mountMemory mounts an in-memory file system on dir, a directory of the pod's, unless one is
// mounted there.
func (v *Volumes) mountMemory(uid pod.UID, dir, kind, options string) error {
	mounted, err := mountinfo.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	target, err := v.openWithin(uid, dir)
	if err != nil {
		return err
	}
	defer target.Close()
	if err := sys.MountFS(kind, mountSource, descriptor(target), options, sys.AllowExec); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, dir, err)
	}
	return nil
}

// openWithin opens a directory of the pod's. Operations on the descriptor affect that directory,
// even if a link is put in its place meanwhile.
func (v *Volumes) openWithin(uid pod.UID, dir string) (*os.File, error) {
	root, err := v.openPod(uid)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	within, err := filepath.Rel(v.dirs.Pod(uid), dir)
	if err != nil {
		return nil, err
	}
	return root.OpenFile(within, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// groupDir gives an emptyDir's own directory to the group, unless it belongs to it already. Its
// content was written by the pod itself and is not changed.
func (v *Volumes) groupDir(uid pod.UID, dir string, group int64) error {
	own, err := v.openWithin(uid, dir)
	if err != nil {
		return err
	}
	defer own.Close()
	info, err := own.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Gid) == group && info.Mode()&os.ModeSetgid != 0 {
		return nil
	}
	if err := own.Chmod(info.Mode() | os.ModeSetgid); err != nil {
		return err
	}
	return own.Chown(-1, int(group)) // last, so that the group shows that all is done
}

// makeDir creates a volume's directory, which every user may write to, if it does not exist.
func (v *Volumes) makeDir(uid pod.UID, kind, name string) (string, error) {
	dir := v.dirs.Revision(uid).Volume(kind, name)
	root, err := v.openPod(uid)
	if err != nil {
		return "", err
	}
	defer root.Close()
	within, err := filepath.Rel(v.dirs.Pod(uid), dir)
	if err != nil {
		return "", err
	}
	info, err := root.Lstat(within)
	if err == nil && !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory", dir)
	}
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return dir, err
	}
	in, err := sys.MkdirBeneath(v.dirs.Pod(uid), layout.ModePrivate, strings.Split(filepath.Dir(within), "/")...)
	if err != nil {
		return "", err
	}
	defer in.Close()
	return dir, directory.Make(in, filepath.Base(within))
}
