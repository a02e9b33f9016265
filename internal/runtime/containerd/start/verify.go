package start

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys"
)

// runc replaces a standard stream that is the machine's own /dev/null by the container's, and masks
// files with the container's /dev/null. A volume may be mounted there, also by way of a symbolic
// link, and then its content decides what runc does.

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
// standard streams are its own, and whether the masked files are masked. A process that is gone is
// no error here.
func verify(pid int, masked []string) error {
	process := "/proc/" + strconv.Itoa(pid)
	root, err := os.Open(process + "/root") // trusted: the directory that runc made the container's root
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
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
	for _, at := range masked {
		st, there, err := inside(root, at)
		if err != nil {
			return err
		}
		// Directories are masked with an empty file system, without /dev/null.
		if there && st.Mode&unix.S_IFMT != unix.S_IFDIR && !isNull(st) {
			return fmt.Errorf("%w: %s is not masked, because %s is not a device in the container",
				errLedAstray, at, os.DevNull)
		}
	}
	return nil
}

// verifyStream returns an error if a standard stream is a /dev/null that is not the container's.
// runc may have given it to the container's user.
func verifyStream(root *os.File, stream string) error {
	var st unix.Stat_t
	if err := unix.Stat(stream, &st); err != nil || !isNull(st) { // trusted: a descriptor, whatever its name
		return nil
	}
	// In a user namespace the container's is the machine's, which nobody there owns.
	own, there, err := inside(root, os.DevNull)
	if err != nil || there && own.Dev == st.Dev && own.Ino == st.Ino {
		return err
	}
	err = fmt.Errorf("%w: its standard input would be the machine's own %s", errLedAstray, os.DevNull)
	if st.Uid != 0 {
		err = errors.Join(err, os.Chown(stream, 0, -1))
	}
	return err
}

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
