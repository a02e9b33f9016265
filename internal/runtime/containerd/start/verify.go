package start

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys"
)

// runc mounts, masks and opens by paths in the container: it replaces a standard stream that is the
// machine's own /dev/null by the container's, masks files with that, and opens the terminal in
// /dev/pts. A volume may be mounted there, also by way of a symbolic link, and then its content
// decides what runc does.

// errLedAstray reports that the content of a volume or an image has misled runc.
var errLedAstray = errors.New("a mount has led the runtime astray")

// coversDev reports whether the manifest itself mounts something where the container's /dev/null
// is, so that runc leaves the standard streams as they are.
func coversDev(c *v1.Container) bool {
	for _, m := range c.VolumeMounts {
		if at := path.Join("/", m.MountPath); at == path.Dir(os.DevNull) || at == os.DevNull {
			return true
		}
	}
	return false
}

// verify checks a container's process that was created and does not run its program yet: whether its
// standard streams are its own, and whether its mounts are those of its spec. A process that is gone
// is no error here.
func verify(pid int, spec *specs.Spec, others bool) error {
	process := "/proc/" + strconv.Itoa(pid)
	root, err := os.Open(process + "/root") // trusted: the directory that runc made the container's root
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("inspecting the container: %w", err)
	}
	defer root.Close()
	for stream := range 3 {
		if err := verifyStream(root, process+"/fd/"+strconv.Itoa(stream)); err != nil {
			return err
		}
	}
	return verifyMounts(process, spec, others)
}

// verifyStream returns an error if a standard stream is neither one of the shim's nor a terminal, or
// is a /dev/null that is not the container's. runc may have given that to the container's user.
func verifyStream(root *os.File, stream string) error {
	var st unix.Stat_t
	if err := unix.Stat(stream, &st); err != nil { // trusted: a descriptor, whatever its name
		return nil
	}
	if !isNull(st) {
		return verifyKind(stream, st)
	}
	// In a user namespace the container's is the machine's, which nobody there owns.
	own, there, err := inside(root, os.DevNull)
	if err != nil || there && own.Dev == st.Dev && own.Ino == st.Ino {
		return err
	}
	err = fmt.Errorf("%w: its standard input would be the machine's own %s", errLedAstray, os.DevNull)
	if st.Uid != 0 {
		err = errors.Join(err, os.Chown(stream, 0, -1)) // trusted: a pipe of podrun's own
	}
	return err
}

// verifyKind returns an error for a stream that is a file of some file system: runc opens the
// terminal's other end, and what it takes for /dev/null, by their paths in the container.
func verifyKind(stream string, st unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO, unix.S_IFSOCK:
		return nil
	case unix.S_IFCHR:
		if major := unix.Major(st.Rdev); firstTerminal <= major && major <= lastTerminal {
			return nil
		}
	}
	return fmt.Errorf("%w: its standard stream %s is neither a pipe nor a terminal", errLedAstray, path.Base(stream))
}

// The devices with these major numbers are the ends of pseudo-terminals that programs use.
const firstTerminal, lastTerminal = 136, 143

func isNull(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// inside inspects a file with the container's paths.
func inside(root *os.File, at string) (st unix.Stat_t, there bool, err error) {
	f, err := sys.OpenBeneath(root, at, sys.LinksInRoot, unix.O_PATH)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return st, false, nil
	}
	if err != nil {
		return st, false, fmt.Errorf("inspecting the container: %w", err)
	}
	defer f.Close()
	err = unix.Fstat(int(f.Fd()), &st)
	return st, err == nil, err
}
