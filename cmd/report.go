package cmd

import (
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"strings"
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

func (a *app) writeReport(r agent.Result, path string, took time.Duration) error {
	if path == "" {
		return nil
	}
	out, err := xml.MarshalIndent(junitOf(r, took), "", "  ")
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := os.WriteFile(path, append([]byte(xml.Header), append(out, '\n')...), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func junitOf(r agent.Result, took time.Duration) junitSuites {
	suite := junitSuite{Name: "podrun once", Tests: len(r.Pods), Time: inSeconds(took)}
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
