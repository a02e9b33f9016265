package embedded

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/executable"
)

// installShim makes path the shim: the program that the build put into this one, or else this program under the shim's
// name. Running shims keep the file that they were started from.
func installShim(path string) error {
	if len(shimProgram) == 0 {
		return executable.Link(path)
	}
	if len(shimProgram) < sha256.Size {
		return errors.New("the program in podrun is cut off")
	}
	sum, compressed := shimProgram[:sha256.Size], shimProgram[sha256.Size:]
	if now, err := sumOf(path); err == nil && bytes.Equal(now, sum) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	program, err := decompressed(compressed)
	if err != nil {
		return fmt.Errorf("decompressing it: %w", err)
	}
	if got := sha256.Sum256(program); !bytes.Equal(got[:], sum) {
		return errors.New("the program in podrun is damaged")
	}
	if err := sys.WriteFile(path, program, 0o755); err != nil {
		// A full disk must not keep pods from running, and podrun from removing images: a link needs no space.
		_ = os.Remove(path + ".tmp")
		if executable.Link(path) != nil {
			return err
		}
	}
	return nil
}

func decompressed(compressed []byte) ([]byte, error) {
	from, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return from.DecodeAll(compressed, nil)
}

// sumOf returns the SHA-256 of an executable regular file; of another file an error.
func sumOf(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch st, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular() || st.Mode().Perm() != 0o755:
		return nil, fmt.Errorf("%s is no program", path)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
