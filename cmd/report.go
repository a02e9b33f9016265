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
	"podrun.io/podrun/internal/glance"
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
		one := junitCase{Name: p.Name, ClassName: p.Namespace, Time: inSeconds(podTook(p))}
		switch {
		case p.Status.Phase == v1.PodFailed:
			suite.Failures++
			one.Failure = &junitMessage{Message: glance.Of(p).Text, Text: endings(p)}
		case !agent.Done(p):
			suite.Errors++
			one.Error = &junitMessage{Message: "not done: " + stateOf(p), Text: p.Status.Message}
		}
		suite.Cases = append(suite.Cases, one)
	}
	return junitSuites{Suites: []junitSuite{suite}}
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// podTook is from a pod's start to the end of its last container.
func podTook(p *v1.Pod) time.Duration {
	if p.Status.StartTime == nil {
		return 0
	}
	var last time.Time
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return max(0, last.Sub(p.Status.StartTime.Time))
}

// endings says how each container ended.
func endings(p *v1.Pod) string {
	var lines []string
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil {
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
			names = append(names, fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, stateOf(p)))
		}
	}
	return strings.Join(names, ", ")
}
