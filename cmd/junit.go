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
)

// The report is JUnit's XML: a suite of all pods, a case for each.
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

// report is the file that tells how a run ended. Whatever ends it, an earlier run's report does not stay.
type report struct {
	path  string // empty: none is written
	began time.Time
	// written: the results, or why there are none, are in it.
	written atomic.Bool
}

// begin replaces an earlier report by one that tells that the run was cut off. What is no file, as a pipe, gets one
// report only.
func (r *report) begin() error {
	if info, err := os.Stat(r.path); r.path == "" || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	err := r.write(r.failed(errors.New("podrun once did not come to its end")))
	r.written.Store(err != nil) // it cannot be
	return err
}

// results writes how the pods ended.
func (r *report) results(result agent.Result) error {
	r.written.Store(true) // or it cannot be written
	return r.write(junitOf(result, time.Since(r.began)))
}

// failure writes why there are no results, unless there are.
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

// replaceFile replaces a file as a whole, or, where that is not possible, as of a file that is mounted by itself, in
// its place.
func replaceFile(path string, text []byte) error {
	whole := writeWhole(path, func(w io.Writer) error { _, err := w.Write(text); return err })
	if whole == nil {
		return nil
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return whole
	}
	return os.WriteFile(path, text, 0o644)
}

// failed is a report of an error that no pod's case can show.
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
			one.Failure = &junitMessage{Message: cli.Of(p).Text, Text: endings(p)}
		case !agent.Done(p):
			suite.Errors++
			one.Error = &junitMessage{Message: whyNotDone(r) + "not done: " + lastState(p), Text: notDoneText(p)}
		}
		suite.Cases = append(suite.Cases, one)
	}
	return junitSuites{Suites: []junitSuite{suite}}
}

// whyNotDone is what ended the wait for the pods, in front of how they are; empty: nothing did.
func whyNotDone(r agent.Result) string {
	switch {
	case r.Interrupted:
		return "interrupted, "
	case r.TimedOut:
		return "timed out, "
	}
	return ""
}

// lastState is how p is, in a word, with how the first of its containers that has failed did so last, else with why it is
// not well.
func lastState(p *v1.Pod) string {
	for _, s := range allStatuses(p) {
		if t := lastEnd(s); t != nil && t.ExitCode != 0 {
			return stateOf(p) + " (" + exitOf(t) + ")"
		}
	}
	if why := cli.Why(p, time.Now()); why != "" && why != stateOf(p) {
		return stateOf(p) + " (" + why + ")"
	}
	return stateOf(p)
}

// exitOf is an exit code, with its reason if that tells more.
func exitOf(t *v1.ContainerStateTerminated) string {
	code := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason == "" || t.Reason == "Error" {
		return code
	}
	return t.Reason + ", " + code
}

// lastEnd is how a container ended last; nil: it has not yet.
func lastEnd(s v1.ContainerStatus) *v1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

func allStatuses(p *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// notDoneText is what else is known of a pod that is not done: its message, how its containers ended last, and what
// they wait for.
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

// podElapsed is from a pod's start to the end of its last container.
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

// endings says how each container ended last.
func endings(p *v1.Pod) string {
	var lines []string
	for _, s := range allStatuses(p) {
		if t := lastEnd(s); t != nil {
			lines = append(lines, fmt.Sprintf("%s: %s, exit code %d%s", s.Name, t.Reason, t.ExitCode, detail(t.Message)))
		}
	}
	return strings.Join(lines, "\n")
}

// unfinished names the pods that are not done, with their state.
func unfinished(r agent.Result) string {
	var names []string
	for _, p := range r.Pods {
		if !agent.Done(p) {
			names = append(names, fmt.Sprintf("%s/%s %s", p.Namespace, p.Name, lastState(p)))
		}
	}
	return strings.Join(names, ", ")
}
