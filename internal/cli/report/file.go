package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"podrun.io/podrun/internal/cli"
)

// File is the file in which once reports the result of a run. However the run ends, the report of
// an earlier run does not stay.
type File struct {
	Path  string // "" if no report is written
	Began time.Time
	// written is true if the file has the results or the error of this run, or cannot be written.
	written atomic.Bool
	again   again
}

// Begin replaces an earlier report by one that says that the run was cut off. If Path is not a
// regular file, such as a pipe, Begin writes nothing, because a reader of a pipe gets one report
// only.
func (r *File) Begin() error {
	if info, err := os.Stat(r.Path); r.Path == "" || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	err := r.write(r.failed(errors.New("podrun once did not come to its end")))
	r.written.Store(err != nil) // do not try again after an error
	return err
}

// Results writes the results of the pods.
func (r *File) Results(result Run) error {
	r.written.Store(true) // also if the write fails: do not try again
	unended := newUnended(r.Path, result)
	if unended == nil {
		return r.write(junitOf(result))
	}
	unended.merged = result.allMerged()
	if err := r.write(junitWith(unended.run, unended.merged)); err != nil {
		return err
	}
	r.again.mu.Lock()
	defer r.again.mu.Unlock()
	r.again.of = unended
	return nil
}

// Failure writes the error because of which there are no results, unless the report has been
// written.
func (r *File) Failure(err error) error {
	if r.written.Swap(true) {
		return nil
	}
	return r.write(r.failed(err))
}

func (r *File) write(suites junitSuites) error {
	if r.Path == "" {
		return nil
	}
	out, err := xml.MarshalIndent(suites, "", "  ")
	if err == nil {
		err = ReplaceFile(r.Path, append([]byte(xml.Header), append(out, '\n')...))
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// ResultsUntil writes the results as Results does. It gives up at an interrupt or after the timeout,
// because the file may be a FIFO without a reader. Half of the time is for reading the reports of containers: however
// long these take, podrun's own results are written.
func (r *File) ResultsUntil(result Run, timeout time.Duration, interrupted <-chan struct{}) error {
	if r.Path == "" {
		return nil
	}
	result.until = time.Now().Add(timeout / 2)
	ended, err := within(func() error { return r.Results(result) }, timeout, interrupted)
	if !ended {
		return fmt.Errorf("the report is not written: nobody reads %s", r.Path)
	}
	return err
}

// within calls write and returns its error. It returns false if write has not ended at an interrupt or after the
// timeout.
func within(write func() error, timeout time.Duration, interrupted <-chan struct{}) (ended bool, err error) {
	written := make(chan error, 1)
	go func() { written <- write() }()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-written:
		return true, err
	case <-timer.C:
	case <-interrupted:
		select {
		case err := <-written:
			return true, err
		case <-time.After(fileTime): // a file is written by then
		}
	}
	return false, nil
}

// fileTime is how long the report may take after an interrupt.
const fileTime = 200 * time.Millisecond

// CheckPath returns an error if the file can be neither written nor created, or if its name has a format in front, as
// other programs take it.
func (r *File) CheckPath() error {
	if r.Path == "" {
		return nil
	}
	if path, is := strings.CutPrefix(r.Path, "junit="); is {
		r.written.Store(true)
		return fmt.Errorf("%s: give the file alone, as --report %s: the format is always JUnit XML", r.Path, path)
	}
	err := Writable(r.Path)
	if err != nil {
		r.written.Store(true) // do not try to report this error in it
	}
	return err
}

// Writable returns an error if a file can be neither written nor created.
func Writable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		path = filepath.Dir(path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s: %w", path, syscall.EISDIR)
	}
	const mayWrite = 2
	if err := syscall.Access(path, mayWrite); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ReplaceFile replaces a file atomically. If that is not possible, as for a file that is a mount
// point, it overwrites the file in place.
func ReplaceFile(path string, text []byte) error {
	whole := cli.WriteAtomic(path, func(w io.Writer) error { _, err := w.Write(text); return err })
	if whole == nil {
		return nil
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return whole
	}
	return os.WriteFile(path, text, 0o644)
}
