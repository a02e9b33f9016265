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
	"podrun.io/podrun/internal/volume/subpath"
)

// subPath returns the path in the volume that a mount shows, with its variables expanded; "" is the
// whole volume.
func subPath(in pod.Inside, m v1.VolumeMount) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		shown := m.SubPathExpr
		expanded, secret, err := env.Expand(m.SubPathExpr, in.Env)
		if err != nil {
			return "", fmt.Errorf("subPathExpr %q %w", shown, err)
		}
		sub = expanded
		switch unknown := env.Unknown(m.SubPathExpr, in.Env); {
		case secret:
			return "", fmt.Errorf("subPathExpr %q: a Secret's value may not become a path", shown)
		case unknown != "":
			return "", fmt.Errorf("subPathExpr %q: the container has no variable %s", shown, unknown)
		case sub == "":
			return "", fmt.Errorf("subPathExpr %q is empty after its variables are expanded", shown)
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

// openPart opens a volume, a directory or a file, or a path in it, to be bind-mounted.
func (s source) openPart(sub string) (*os.File, error) {
	switch {
	case sub != "":
		return openSubPath(s, sub)
	case s.open != nil:
		return s.open()
	}
	return os.OpenFile(s.path, unix.O_PATH, 0) // trusted: where a volume is, and only to mount it
}

// openSubPath opens a path in a volume, and creates a directory if there is nothing. Symbolic links
// on the way may lead anywhere in the volume but not out of it. The kernel enforces that while it
// opens the path, so there is no gap between a check and its use.
func openSubPath(s source, sub string) (*os.File, error) {
	dir, err := s.openPart("")
	if err != nil {
		return nil, fmt.Errorf("subPath %q: %w", sub, err)
	}
	defer dir.Close()
	for tries := 0; ; tries++ {
		// trusted: beneath the volume, and only as a path
		fd, err := unix.Openat2(int(dir.Fd()), sub, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(s.path, sub)), nil
		case errors.Is(err, unix.EAGAIN) && tries < 100: // something on the path was renamed in the meantime
		case errors.Is(err, unix.EXDEV):
			return nil, fmt.Errorf("subPath %q leads out of the volume", sub)
		case errors.Is(err, unix.ENOSYS):
			return nil, fmt.Errorf("subPath %q: needs a kernel with openat2 (Linux 5.6)", sub)
		case errors.Is(err, unix.ENOENT) && s.filled:
			return nil, fmt.Errorf("subPath %q is not in the volume", sub)
		case errors.Is(err, unix.ENOENT) && tries < 100:
			if err := subpath.Make(dir, sub); err != nil {
				return nil, fmt.Errorf("subPath %q: %w", sub, err)
			}
		default:
			return nil, fmt.Errorf("subPath %q: %w", sub, err)
		}
	}
}
