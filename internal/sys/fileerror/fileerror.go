// Package fileerror words errors of files for users: the path and the cause, without the name of the
// system call. It does not decide anything.
//
// Begin reading at Named.
package fileerror

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
)

// Named returns an error that begins with the path; err itself if it is no error of a file.
func Named(err error) error {
	var failed *fs.PathError
	if !errors.As(err, &failed) {
		return err
	}
	return fmt.Errorf("%s: %w", failed.Path, failed.Err)
}

// Cause returns the cause alone, for a message that names the file already.
func Cause(err error) error {
	var failed *fs.PathError
	if !errors.As(err, &failed) {
		return err
	}
	return failed.Err
}

// CheckPEM returns an error if a file does not have the PEM format.
func CheckPEM(path string, data []byte) error {
	if block, _ := pem.Decode(data); block == nil {
		return fmt.Errorf("%s: is not in PEM format", path)
	}
	return nil
}
