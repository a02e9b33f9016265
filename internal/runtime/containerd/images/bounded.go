package images

import (
	"archive/tar"
	"bufio"
	"fmt"
	"io"
	"path"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
)

// bounded returns an archive's bytes. Reading fails in the first file that is bigger than
// unpacked.MaxText and would be decoded: containerd's import decodes some files while it reads them, and
// accepts 20 MiB of them, which take many times as much memory. The caller calls stop when it does not read any more.
func bounded(archive io.Reader) (out io.Reader, stop func()) {
	from, to := io.Pipe()
	go func() { _ = from.CloseWithError(check(from)) }()
	return io.TeeReader(archive, to), func() { _ = to.Close() }
}

// check reads an archive to its end, or to the first file that is too big.
func check(archive io.Reader) error {
	const atOnce = 1 << 20 // so that its writer seldom waits
	all := bufio.NewReaderSize(archive, atOnce)
	files := tar.NewReader(all)
	for {
		file, err := files.Next()
		if err != nil { // at the end, or damage, which the import reports
			_, err = io.Copy(io.Discard, all)
			return err
		}
		name := path.Clean(file.Name)
		if (name == imagespec.ImageLayoutFile || name == "manifest.json") && file.Size > unpacked.MaxText {
			return fmt.Errorf("%s of the archive has %d bytes; the maximum is %d", name, file.Size, unpacked.MaxText)
		}
	}
}
