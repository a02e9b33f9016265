package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// readyHostPath checks that the path is what its type says, after creating it if the type says so,
// and returns it. Symbolic links are followed: the user chose the path.
func readyHostPath(h *v1.HostPathVolumeSource) (string, error) {
	kind := v1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	// Validation accepts a relative path; it is relative to /, whatever podrun's working directory
	// is.
	path := filepath.Join("/", h.Path)
	if err := makeHostPath(path, kind); err != nil {
		return "", fmt.Errorf("hostPath type check failed: %w", err)
	}
	info, err := os.Stat(path) // trusted: it is only inspected
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("hostPath type check failed: %s does not exist, wanted %s", path, article(kind))
	case err != nil:
		return "", fmt.Errorf("hostPath type check failed: %w", err)
	case !isKind(info.Mode(), kind):
		return "", fmt.Errorf("hostPath type check failed: %s is not %s", path, article(kind))
	}
	return path, nil
}

// makeHostPath creates what does not exist, for the types that require that. Without a type it
// creates a directory, as container runtimes do under Kubernetes. The parent directory of a file is
// not created.
func makeHostPath(path string, kind v1.HostPathType) error {
	switch kind {
	case v1.HostPathUnset, v1.HostPathDirectoryOrCreate:
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) { // trusted: it is only inspected
			return nil // the caller inspects it again and reports what is wrong
		}
		return os.MkdirAll(path, 0o755)
	case v1.HostPathFileOrCreate:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) // trusted: only made
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(f.Chmod(0o644), f.Close())
	}
	return nil
}

func isKind(mode fs.FileMode, kind v1.HostPathType) bool {
	switch kind {
	case v1.HostPathUnset:
		return true
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		return mode.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		return mode.IsRegular()
	case v1.HostPathSocket:
		return mode&fs.ModeSocket != 0
	case v1.HostPathCharDev:
		return mode&fs.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		return mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	}
	return false
}

func article(kind v1.HostPathType) string {
	switch kind {
	case v1.HostPathUnset:
		return "anything"
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		return "a directory"
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		return "a file"
	case v1.HostPathSocket:
		return "a socket file"
	case v1.HostPathCharDev:
		return "a character device"
	case v1.HostPathBlockDev:
		return "a block device"
	}
	return fmt.Sprintf("of a type that is known: %q", string(kind))
}
