package start

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// mostMountInfo is the maximum size of a list of mounts that is read, in bytes.
const mostMountInfo = 16 << 20

// verifyMounts checks with the kernel's list of a container's mounts that those by which runc
// isolates it are where they belong. A path could not tell: a process that shares a volume may
// rename what the path leads through, while runc mounts and again while podrun looks. The list has
// each mount with what it is and where it is now. A process that is gone is no error here.
func verifyMounts(process string, spec *specs.Spec, others bool) error {
	f, err := os.Open(process + "/mountinfo") // trusted: the kernel's
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("inspecting the container's mounts: %w", err)
	}
	defer f.Close()
	limited := &io.LimitedReader{R: f, N: mostMountInfo}
	mounts, err := mountinfo.GetMountsFromReader(limited, nil)
	if gone(err) {
		return nil
	}
	if err == nil && limited.N <= 0 {
		err = fmt.Errorf("their list is longer than %d bytes", mostMountInfo)
	}
	if err != nil {
		return fmt.Errorf("inspecting the container's mounts: %w", err)
	}
	return judge(spec, mounts, others, func(at string) bool {
		_, err := os.Lstat(at)
		return err == nil
	})
}

// gone reports whether the error is that of a process that has ended, and may not be reaped yet.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// mountTable is the list of a container's mounts.
type mountTable struct {
	byID map[int]*mountinfo.Info
	at   map[string][]*mountinfo.Info
	spec *specs.Spec
	// bound has the destinations of the spec's bind mounts. What is mounted in a bound directory on
	// the machine is mounted in the container, too.
	bound map[string]bool
	// expected are the paths at which runc mounts something.
	expected map[string]bool
	// exists reports whether a path of /proc or /sys exists on this machine.
	exists func(at string) bool
}

// judge returns an error unless the mounts of a container that is not privileged are those of its
// spec, as far as its isolation depends on them: those in /proc, /sys and /dev, with what is masked
// and read-only there, and the container's own proc nowhere else. others means that there may be
// more mounts than runc makes by itself, because of hooks or of another runtime.
//
// Mounts elsewhere may be at other paths than the spec's, by links in the image or in a volume.
func judge(spec *specs.Spec, mounts []*mountinfo.Info, others bool, exists func(at string) bool) error {
	t := &mountTable{
		byID: map[int]*mountinfo.Info{}, at: map[string][]*mountinfo.Info{}, spec: spec,
		bound: map[string]bool{}, expected: map[string]bool{}, exists: exists,
	}
	for _, m := range mounts {
		t.byID[m.ID] = m
		t.at[m.Mountpoint] = append(t.at[m.Mountpoint], m)
	}
	for _, m := range spec.Mounts {
		at := path.Clean(m.Destination)
		t.expected[at] = true
		t.bound[at] = t.bound[at] || m.Type == "bind" ||
			slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
	}
	proc, err := t.top("/proc")
	if err == nil {
		err = cmp.Or(is(proc, "proc"), t.verifySpecs(), t.verifyHidden(), t.verifyConsole())
	}
	if err == nil {
		err = t.verifyRest(mounts, proc, others)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errLedAstray, err)
	}
	return nil
}

// isOwn reports whether a path is in a directory that runc makes.
func isOwn(at string) bool {
	return isBelow(at, "/proc") || isBelow(at, "/sys") || isBelow(at, "/dev")
}

func isBelow(at, dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }

func isReadOnly(m *mountinfo.Info) bool { return slices.Contains(strings.Split(m.Options, ","), "ro") }

// is returns an error if the mount is not the whole of a file system of the type.
func is(m *mountinfo.Info, fsType string) error {
	if m.FSType != fsType || m.Root != "/" {
		return fmt.Errorf("%s of a file system of type %s is mounted at %s", m.Root, m.FSType, m.Mountpoint)
	}
	return nil
}

// top returns the one mount that is visible at a path; what it covers came with a bound directory.
func (t *mountTable) top(at string) (*mountinfo.Info, error) {
	var top *mountinfo.Info
	for _, m := range t.at[at] {
		covered := t.isCovered(m)
		switch {
		case covered && t.isBound(m):
		case covered || top != nil:
			return nil, fmt.Errorf("two mounts are at %s", at)
		default:
			top = m
		}
	}
	if top == nil {
		return nil, fmt.Errorf("nothing is mounted at %s", at)
	}
	return top, nil
}

// isCovered reports whether another mount is over the mount.
func (t *mountTable) isCovered(m *mountinfo.Info) bool {
	return slices.ContainsFunc(t.at[m.Mountpoint], func(other *mountinfo.Info) bool { return other.Parent == m.ID })
}

// isBound reports whether the mount is one of the spec's bind mounts, or in one.
func (t *mountTable) isBound(m *mountinfo.Info) bool {
	return t.hasAncestor(m, func(above *mountinfo.Info) bool { return t.bound[above.Mountpoint] })
}

// hasAncestor reports whether the condition holds for the mount or for one in which it is.
func (t *mountTable) hasAncestor(m *mountinfo.Info, condition func(*mountinfo.Info) bool) bool {
	for range len(t.byID) + 1 {
		if m == nil {
			return false
		}
		if condition(m) {
			return true
		}
		m = t.byID[m.Parent]
	}
	return false
}

// verifySpecs checks that the spec's mounts in runc's own directories are at their places, and that
// read-only ones are read-only: runc finds their paths anew for that.
func (t *mountTable) verifySpecs() error {
	for _, m := range t.spec.Mounts {
		at := path.Clean(m.Destination)
		readOnly := slices.Contains(m.Options, "ro") && !slices.Contains(m.Options, "rw")
		if readOnly && t.bound[at] && len(t.at[at]) > 0 && !slices.ContainsFunc(t.at[at], isReadOnly) {
			return fmt.Errorf("the mount at %s is not read-only", at)
		}
		if !isOwn(at) {
			continue
		}
		if t.bound[at] {
			if len(t.at[at]) == 0 {
				return fmt.Errorf("nothing is mounted at %s", at)
			}
			continue
		}
		top, err := t.top(at)
		if err != nil {
			return err
		}
		switch {
		case m.Type == "cgroup" && slices.Contains([]string{"tmpfs", "cgroup", "cgroup2"}, top.FSType):
		case m.Type == "proc" || m.Type == "sysfs":
			err = is(top, m.Type)
		case top.FSType != m.Type:
			err = fmt.Errorf("a file system of type %s is mounted at %s", top.FSType, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verifyHidden checks that what the spec masks is masked and what it makes read-only is read-only.
func (t *mountTable) verifyHidden() error {
	for _, at := range t.spec.Linux.ReadonlyPaths {
		err := t.verifyOver(at, isReadOnly)
		if err != nil {
			return fmt.Errorf("%s is not read-only: %w", at, err)
		}
	}
	for _, at := range t.spec.Linux.MaskedPaths {
		err := t.verifyOver(at, func(m *mountinfo.Info) bool { return m.FSType != "proc" && m.FSType != "sysfs" })
		if err != nil {
			return fmt.Errorf("%s is not masked: %w", at, err)
		}
	}
	return nil
}

// verifyOver checks that each visible mount at a path of /proc or /sys is as it should be, and that
// there is one if the path exists.
func (t *mountTable) verifyOver(at string, right func(*mountinfo.Info) bool) error {
	t.expected[at] = true
	base, err := t.top("/" + strings.Split(at, "/")[1])
	if err != nil {
		return err
	}
	found := false
	for _, m := range t.at[at] {
		if t.isCovered(m) {
			continue
		}
		if !right(m) || !t.hasAncestor(m, func(above *mountinfo.Info) bool { return above == base }) {
			return fmt.Errorf("%s of a file system of type %s is mounted there", m.Root, m.FSType)
		}
		found = true
	}
	// A volume in between has the path or not.
	for dir := path.Dir(at); !found && dir != base.Mountpoint && dir != "/"; dir = path.Dir(dir) {
		found = t.bound[dir]
	}
	if !found && t.exists(at) {
		return errors.New("nothing is mounted there")
	}
	return nil
}

// verifyConsole checks that /dev/console is a terminal.
func (t *mountTable) verifyConsole() error {
	const at = "/dev/console"
	if t.spec.Process == nil || !t.spec.Process.Terminal {
		return nil
	}
	t.expected[at] = true
	var top *mountinfo.Info
	for _, m := range t.at[at] {
		if !t.isCovered(m) {
			top = m
		}
	}
	if top == nil {
		return fmt.Errorf("nothing is mounted at %s", at)
	}
	n := strings.TrimPrefix(top.Root, "/")
	if top.FSType != "devpts" || n == "" || strings.Trim(n, "0123456789") != "" {
		return fmt.Errorf("%s of a file system of type %s is mounted at %s", top.Root, top.FSType, at)
	}
	return nil
}

// verifyRest checks that there are no mounts beside the expected ones that could undo them.
func (t *mountTable) verifyRest(mounts []*mountinfo.Info, proc *mountinfo.Info, others bool) error {
	if _, err := t.top("/"); err != nil {
		return err
	}
	for _, m := range mounts {
		switch {
		case t.isBound(m):
		case m.Major == proc.Major && m.Minor == proc.Minor && !isBelow(m.Mountpoint, "/proc"):
			return fmt.Errorf("%s of the container's proc is mounted at %s", m.Root, m.Mountpoint)
		case others, !isOwn(m.Mountpoint), t.expected[m.Mountpoint], t.isDevice(m), t.isController(m):
		default:
			return fmt.Errorf("%s of a file system of type %s is mounted at %s, where the container has no mount",
				m.Root, m.FSType, m.Mountpoint)
		}
	}
	return nil
}

// isDevice reports whether the mount is a device of the machine: runc binds devices where it may
// not create them, as in user namespaces.
func (t *mountTable) isDevice(m *mountinfo.Info) bool {
	switch m.Mountpoint {
	case "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty":
		return m.Root == m.Mountpoint || m.Root == strings.TrimPrefix(m.Mountpoint, "/dev")
	}
	return slices.ContainsFunc(t.spec.Linux.Devices, func(d specs.LinuxDevice) bool { return d.Path == m.Mountpoint })
}

// isController reports whether the mount is a hierarchy of cgroup v1, in the directory of them all.
func (t *mountTable) isController(m *mountinfo.Info) bool {
	return isBelow(m.Mountpoint, "/sys/fs/cgroup") && (m.FSType == "cgroup" || m.FSType == "cgroup2")
}
