package images

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
)

// maxListed is the maximum number of files in an archive, and of tags and layers in its manifest.json. containerd's
// import keeps some hundred bytes of each, and a manifest.json of 4 MiB could have a million.
const maxListed = 100_000

// bounded returns an archive's bytes, as far as they are checked. Reading fails in the first file with which
// containerd's import would take much more memory, work or disk than the archive has bytes. The archive is not read any
// more when stop has returned.
func bounded(archive io.Reader) (out io.Reader, stop func()) {
	from, to := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		const atOnce = 1 << 20 // so that its reader seldom waits
		passed := bufio.NewWriterSize(to, atOnce)
		err := check(io.TeeReader(archive, passed))
		if err == nil {
			err = passed.Flush()
		}
		_ = to.CloseWithError(err)
	}()
	return from, func() {
		_ = from.Close()
		<-done
	}
}

// check reads an archive to its end, or to the first file that is not accepted.
func check(archive io.Reader) error {
	files := tar.NewReader(archive)
	count, names := 0, 0
	for {
		file, err := files.Next()
		if err != nil { // at the end, or damage, which the import reports
			_, err = io.Copy(io.Discard, archive)
			return err
		}
		count++
		names += len(file.Name) + len(file.Linkname)
		if count > maxListed || names > unpacked.MaxText {
			return fmt.Errorf("the archive has more than %d files, or their names more than %d bytes", maxListed, unpacked.MaxText)
		}
		if err := checkFile(file, files); err != nil {
			return err
		}
	}
}

// checkFile returns an error for a file of an archive that is not accepted.
func checkFile(file *tar.Header, content io.Reader) error {
	name := path.Clean(file.Name)
	for record := range file.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return fmt.Errorf("%s of the archive is a sparse file, which may have any size; make the archive without such files",
				unpacked.Quoted(name))
		}
	}
	if name != imagespec.ImageLayoutFile && name != "manifest.json" {
		return nil
	}
	if file.Size > unpacked.MaxText {
		return fmt.Errorf("%s of the archive has %d bytes; the maximum is %d", name, file.Size, unpacked.MaxText)
	}
	if name == "manifest.json" {
		return checkList(content)
	}
	return nil
}

// checkList returns an error for a manifest.json that names too much. The import decodes the config of each image, and
// writes an index with each tag. An error of the JSON is left to it.
func checkList(text io.Reader) error {
	var list []struct{ RepoTags, Layers []string }
	if json.NewDecoder(text).Decode(&list) != nil {
		return nil
	}
	count := 0
	for _, image := range list {
		count += len(image.RepoTags) + len(image.Layers)
	}
	if len(list) > maxNested || count > maxListed {
		return fmt.Errorf("manifest.json of the archive names more than %d images, or %d tags and layers", maxNested, maxListed)
	}
	return nil
}
