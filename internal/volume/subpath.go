package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/pod"
)

// subPath is the part of the volume that a mount is of, with its variables put in; "" is the whole.
func subPath(in pod.Inside, m v1.VolumeMount) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		var secret bool
		sub, secret = env.Expand(m.SubPathExpr, in.Env)
		shown := m.SubPathExpr
		switch unknown := env.Unknown(m.SubPathExpr, in.Env); {
		case secret:
			return "", fmt.Errorf("subPathExpr %q: a Secret's value may not become a path", shown)
		case unknown != "":
			return "", fmt.Errorf("subPathExpr %q: the container has no variable %s", shown, unknown)
		case sub == "":
			return "", fmt.Errorf("subPathExpr %q is empty when its variables are put in", shown)
		}
	}
	if filepath.IsAbs(sub) {
		return "", fmt.Errorf("subPath %q must not be an absolute path", sub)
	}
	for _, part := range strings.Split(sub, "/") {
		if part == ".." {
			return "", fmt.Errorf("subPath %q must not contain '..'", sub)
		}
	}
	return sub, nil
}

// openSubPath opens a part of a volume, making a directory where there is nothing. Symbolic links on the
// way may lead about in the volume but not out of it: the kernel sees to that, so that there is no moment
// between looking and opening.
func openSubPath(s source, sub string) (*os.File, error) {
	root, err := os.OpenRoot(s.path)
	if err != nil {
		return nil, fmt.Errorf("subPath %q: %w", sub, errors.Unwrap(err))
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("subPath %q: %w", sub, errors.Unwrap(err))
	}
	defer dir.Close()
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(int(dir.Fd()), sub, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(s.path, sub)), nil
		case errors.Is(err, unix.EAGAIN) && tries < 100: // something on the way was renamed meanwhile
		case errors.Is(err, unix.EXDEV):
			return nil, fmt.Errorf("subPath %q leads out of the volume", sub)
		case errors.Is(err, unix.ENOSYS):
			return nil, fmt.Errorf("subPath %q: needs a kernel with openat2 (Linux 5.6)", sub)
		case errors.Is(err, unix.ENOENT) && s.filled:
			return nil, fmt.Errorf("subPath %q is not in the volume", sub)
		case errors.Is(err, unix.ENOENT) && tries < 100:
			if err := makeSubPath(root, sub); err != nil {
				return nil, fmt.Errorf("subPath %q: %w", sub, err)
			}
		default:
			return nil, fmt.Errorf("subPath %q: %w", sub, err)
		}
	}
}

// makeSubPath makes the directories that are missing, with the mode of the one that they come into.
func makeSubPath(root *os.Root, sub string) error {
	at := ""
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	for _, part := range strings.Split(filepath.Clean(sub), "/") {
		at = filepath.Join(at, part)
		now, err := root.Stat(at)
		if err == nil {
			info = now
			continue
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		mode := info.Mode() & (os.ModePerm | os.ModeSetgid)
		if err := root.Mkdir(at, mode.Perm()); err != nil {
			return err
		}
		if err := root.Chmod(at, mode); err != nil { // the umask takes bits of Mkdir's away
			return err
		}
	}
	return nil
}
