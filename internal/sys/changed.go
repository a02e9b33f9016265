package sys

import (
	"bytes"
	"os"
)

// ChangedFile is a file of this boot that is written only when its contents change.
type ChangedFile struct {
	Path string // of the file
	last []byte
}

// Write replaces the file, by ReplaceFile, unless data is what was written last.
func (f *ChangedFile) Write(data []byte, mode os.FileMode) error {
	if bytes.Equal(data, f.last) {
		return nil
	}
	if err := ReplaceFile(f.Path, data, mode); err != nil {
		return err
	}
	f.last = data
	return nil
}
