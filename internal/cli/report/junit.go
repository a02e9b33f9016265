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

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// The report is in JUnit's XML format: one suite for all pods, and one test case per pod.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		ClassName string        `xml:"classname,attr"`
		Time      string        `xml:"time,attr"`
		Failure   *junitMessage `xml:"failure,omitempty"`
		Error     *junitMessage `xml:"error,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// File is the file in which once reports the result of a run. However the run ends, the report of
// an earlier run does not stay.
type File struct {
	Path  string // "" if no report is written
	Began time.Time
	// written is true if the file has the results or the error of this run, or cannot be written.
	written atomic.Bool
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
	return r.write(junitOf(result, time.Since(r.Began)))
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
		err = replaceFile(r.Path, append([]byte(xml.Header), append(out, '\n')...))
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// ResultsUntil writes the results as Results does. It gives up at an interrupt or after the timeout,
// because the file may be a FIFO without a reader.
func (r *File) ResultsUntil(result Run, timeout time.Duration, interrupted <-chan struct{}) error {
	written := make(chan error, 1)
	go func() { written <- r.Results(result) }()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-written:
		return err
	case <-timer.C:
	case <-interrupted:
	}
	return fmt.Errorf("the report is not written: nobody reads %s", r.Path)
}

// CheckPath returns an error if the file can be neither written nor created.
func (r *File) CheckPath() error {
	if r.Path == "" {
		return nil
	}
	err := writable(r.Path)
	if err != nil {
		r.written.Store(true) // do not try to report this error in it
	}
	return err
}

// writable returns an error if a file can be neither written nor created.
func writable(path string) error {
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

// replaceFile replaces a file atomically. If that is not possible, as for a file that is a mount
// point, it overwrites the file in place.
func replaceFile(path string, text []byte) error {
	whole := cli.WriteAtomic(path, func(w io.Writer) error { _, err := w.Write(text); return err })
	if whole == nil {
		return nil
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return whole
	}
	return os.WriteFile(path, text, 0o644)
}

// failed returns a report of an error that belongs to no pod.
func (r *File) failed(err error) junitSuites {
	elapsed, text := inSeconds(time.Since(r.Began)), strings.TrimSpace(err.Error())
	first, _, _ := strings.Cut(text, "\n")
	return junitSuites{Suites: []junitSuite{{
		Name: suiteName, Tests: 1, Errors: 1, Time: elapsed,
		Cases: []junitCase{{
			Name: suiteName, ClassName: "podrun", Time: elapsed, Error: &junitMessage{Message: first, Text: text},
		}},
	}}}
}

const suiteName = "podrun once"

func junitOf(r Run, elapsed time.Duration) junitSuites {
	suite := junitSuite{Name: suiteName, Tests: len(r.Pods), Time: inSeconds(elapsed)}
	for _, p := range r.Pods {
		one := junitCase{Name: p.Name, ClassName: p.Namespace, Time: inSeconds(r.Durations[pod.KeyOf(p)])}
		switch {
		case p.Status.Phase == v1.PodFailed:
			suite.Failures++
			one.Failure = &junitMessage{Message: summary.Of(p).Text, Text: lastExits(p)}
		case !r.Done(p):
			suite.Errors++
			one.Error = &junitMessage{Message: whyNotDone(r) + "not done: " + lastState(p), Text: notDoneText(p)}
		}
		suite.Cases = append(suite.Cases, one)
	}
	return junitSuites{Suites: []junitSuite{suite}}
}

// whyNotDone returns what ended the wait for the pods, as a prefix of their state, or "" if nothing
// did.
func whyNotDone(r Run) string {
	switch {
	case r.Interrupted:
		return "interrupted, "
	case r.TimedOut:
		return "timed out, "
	}
	return ""
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
