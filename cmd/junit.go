package cmd

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/summary"
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

// report is the file in which once reports the result of a run. However the run ends, the report of
// an earlier run does not stay.
type report struct {
	path  string // "" if no report is written
	began time.Time
	// written is true if the file has the results or the error of this run, or cannot be written.
	written atomic.Bool
}

// begin replaces an earlier report by one that says that the run was cut off. If path is not a
// regular file, such as a pipe, begin writes nothing, because a reader of a pipe gets one report
// only.
func (r *report) begin() error {
	if info, err := os.Stat(r.path); r.path == "" || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	err := r.write(r.failed(errors.New("podrun once did not come to its end")))
	r.written.Store(err != nil) // do not try again after an error
	return err
}

// results writes the results of the pods.
func (r *report) results(result agent.Result) error {
	r.written.Store(true) // also if the write fails: do not try again
	return r.write(junitOf(result, time.Since(r.began)))
}

// failure writes the error because of which there are no results, unless the report has been
// written.
func (r *report) failure(why error) error {
	if r.written.Swap(true) {
		return nil
	}
	return r.write(r.failed(why))
}

func (r *report) write(suites junitSuites) error {
	if r.path == "" {
		return nil
	}
	out, err := xml.MarshalIndent(suites, "", "  ")
	if err == nil {
		err = replaceFile(r.path, append([]byte(xml.Header), append(out, '\n')...))
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
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
func (r *report) failed(why error) junitSuites {
	took, text := inSeconds(time.Since(r.began)), strings.TrimSpace(why.Error())
	first, _, _ := strings.Cut(text, "\n")
	return junitSuites{Suites: []junitSuite{{
		Name: suiteName, Tests: 1, Errors: 1, Time: took,
		Cases: []junitCase{{
			Name: suiteName, ClassName: "podrun", Time: took, Error: &junitMessage{Message: first, Text: text},
		}},
	}}}
}

const suiteName = "podrun once"

func junitOf(r agent.Result, took time.Duration) junitSuites {
	suite := junitSuite{Name: suiteName, Tests: len(r.Pods), Time: inSeconds(took)}
	for _, p := range r.Pods {
		one := junitCase{Name: p.Name, ClassName: p.Namespace, Time: inSeconds(podElapsed(p))}
		switch {
		case p.Status.Phase == v1.PodFailed:
			suite.Failures++
			one.Failure = &junitMessage{Message: summary.Of(p).Text, Text: endings(p)}
		case !agent.Done(p):
			suite.Errors++
			one.Error = &junitMessage{Message: whyNotDone(r) + "not done: " + lastState(p), Text: notDoneText(p)}
		}
		suite.Cases = append(suite.Cases, one)
	}
	return junitSuites{Suites: []junitSuite{suite}}
}

// whyNotDone returns what ended the wait for the pods, as a prefix of their state, or "" if nothing
// did.
func whyNotDone(r agent.Result) string {
	switch {
	case r.Interrupted:
		return "interrupted, "
	case r.TimedOut:
		return "timed out, "
	}
	return ""
}

// lastState returns the state of p in a word and, in brackets, the last exit of the first container
// that has failed or else the reason why p is not well.
func lastState(p *v1.Pod) string {
	for _, s := range allStatuses(p) {
		if t := lastEnd(s); t != nil && t.ExitCode != 0 {
			return stateOf(p) + " (" + exitOf(t) + ")"
		}
	}
	if why := summary.Why(p, time.Now()); why != "" && why != stateOf(p) {
		return stateOf(p) + " (" + why + ")"
	}
	return stateOf(p)
}

// exitOf returns an exit code, with the reason if that adds information.
func exitOf(t *v1.ContainerStateTerminated) string {
	code := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason == "" || t.Reason == "Error" {
		return code
	}
	return t.Reason + ", " + code
}

// lastEnd returns the most recent termination of a container, or nil if it has not terminated yet.
func lastEnd(s v1.ContainerStatus) *v1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

func allStatuses(p *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// notDoneText returns the details of a pod that is not done: its message, the last exit of each
// container, and what its containers wait for.
func notDoneText(p *v1.Pod) string {
	var lines []string
	if p.Status.Message != "" {
		lines = append(lines, p.Status.Message)
	}
	if ended := endings(p); ended != "" {
		lines = append(lines, ended)
	}
	for _, s := range allStatuses(p) {
		if w := s.State.Waiting; w != nil && w.Message != "" {
			lines = append(lines, s.Name+": "+w.Message)
		}
	}
	return strings.Join(lines, "\n")
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// podElapsed returns the time from the start of a pod to the termination of its last container.
func podElapsed(p *v1.Pod) time.Duration {
	if p.Status.StartTime == nil {
		return 0
	}
	var last time.Time
	for _, s := range allStatuses(p) {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return max(0, last.Sub(p.Status.StartTime.Time))
}

// endings returns one line per container with its last exit.
func endings(p *v1.Pod) string {
	var lines []string
	for _, s := range allStatuses(p) {
		if t := lastEnd(s); t != nil {
			lines = append(lines,
				fmt.Sprintf("%s: %s, exit code %d%s", s.Name, t.Reason, t.ExitCode, detail(t.Message)))
		}
	}
	return strings.Join(lines, "\n")
}

// unfinished lists the pods that are not done, each with its state.
func unfinished(r agent.Result) string {
	var names []string
	for _, p := range r.Pods {
		if !agent.Done(p) {
			names = append(names, fmt.Sprintf("%s/%s %s", p.Namespace, p.Name, lastState(p)))
		}
	}
	return strings.Join(names, ", ")
}
