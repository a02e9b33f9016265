package sys

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadSettings reads a file that an option of podrun names, such as credentials or a token. It fails with
// ErrNotRegular for a FIFO or a device: such a read may block forever, and most of these files are read
// again and again. Symbolic links are followed.
func ReadSettings(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: path, Err: ErrNotRegular}
	}
	return io.ReadAll(f)
}
