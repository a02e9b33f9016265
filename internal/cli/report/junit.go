package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// The report is in JUnit's XML format: one suite per manifest, and one test case per container. It has
// only what both of the common schemas allow, that of Ant and that of Jenkins: output and properties are
// the suite's.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Package    string          `xml:"package,attr"`
		ID         int             `xml:"id,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Hostname   string          `xml:"hostname,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Properties junitProperties `xml:"properties"`
		Cases      []junitCase     `xml:"testcase"`
		Out        junitText       `xml:"system-out"`
		Err        junitText       `xml:"system-err"`
	}
	junitProperties struct {
		All []junitProperty `xml:"property"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		ClassName string        `xml:"classname,attr"`
		Time      string        `xml:"time,attr"`
		Skipped   *junitSkipped `xml:"skipped,omitempty"`
		Error     *junitMessage `xml:"error,omitempty"`
		Failure   *junitMessage `xml:"failure,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",cdata"`
	}
	// junitText is text that looks in the file as it was written.
	junitText struct {
		Text string `xml:",cdata"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr,omitempty"`
	}
)

// The limits of a report: it is for people, and CI services refuse a large one.
const (
	maxCaseText  = 8 << 10   // bytes of a message
	maxContainer = 32 << 10  // bytes of the output of a container, its end
	maxSuiteText = 512 << 10 // bytes of the output of a suite
)

const suiteName = "podrun once"

// failed returns a report of an error that belongs to no pod.
func (r *File) failed(err error) junitSuites {
	elapsed, text := inSeconds(time.Since(r.Began)), strings.TrimSpace(err.Error())
	first, _, _ := strings.Cut(text, "\n")
	suite := newSuite(suiteName, r.Began)
	suite.Time = elapsed
	suite.Cases = []junitCase{{
		Name: suiteName, ClassName: "podrun", Time: elapsed,
		Error: &junitMessage{Message: first, Type: "Error", Text: bounded(text, maxCaseText)},
	}}
	return numbered([]junitSuite{suite})
}

// newSuite returns a suite without cases.
func newSuite(name string, began time.Time) junitSuite {
	base := strings.TrimSuffix(path.Base(name), path.Ext(name))
	return junitSuite{
		Name: name, Package: cmp.Or(base, "podrun"), Hostname: "localhost", Time: inSeconds(0),
		Timestamp: began.UTC().Format("2006-01-02T15:04:05"),
	}
}

// numbered returns a report of these suites. What XML cannot have is removed from their texts.
func numbered(suites []junitSuite) junitSuites {
	for i := range suites {
		s := &suites[i]
		s.ID, s.Tests = i, len(s.Cases)
		s.Failures, s.Errors, s.Skipped = 0, 0, 0
		s.Out.Text, s.Err.Text = legible(s.Out.Text), legible(s.Err.Text)
		for _, c := range s.Cases {
			for _, m := range []*junitMessage{c.Failure, c.Error} {
				if m != nil {
					m.Text = legible(m.Text)
				}
			}
			switch {
			case c.Failure != nil:
				s.Failures++
			case c.Error != nil:
				s.Errors++
			case c.Skipped != nil:
				s.Skipped++
			}
		}
	}
	return junitSuites{Suites: suites}
}

// junitOf returns the report of a run.
func junitOf(r Run) junitSuites { return junitWith(r, r.allMerged()) }

// junitWith returns the report of a run, with the suites of the reports of its containers.
func junitWith(r Run, merged []junitSuite) junitSuites {
	byManifest := map[string][]*v1.Pod{}
	var names []string
	for _, p := range r.Pods {
		name := cmp.Or(manifest.OriginOf(p).Path, suiteName)
		names = append(names, name)
		byManifest[name] = append(byManifest[name], p)
	}
	for _, j := range r.Jobs {
		names = append(names, cmp.Or(j.Manifest, suiteName))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var suites []junitSuite
	for _, name := range names {
		suites = append(suites, r.suiteOf(name, byManifest[name]))
	}
	return numbered(append(suites, merged...))
}

// suiteOf returns the suite of a manifest, which has these pods.
func (r Run) suiteOf(name string, pods []*v1.Pod) junitSuite {
	suite := newSuite(name, r.Began)
	for _, p := range pods {
		suite.Hostname = cmp.Or(p.Spec.NodeName, suite.Hostname)
		if !r.ofJob(p) {
			suite.Cases = append(suite.Cases, r.casesOf(p)...)
		}
		for _, role := range summary.InitialFirst(summary.Roles(p)) {
			r.describe(&suite, p, role)
		}
	}
	for _, j := range r.Jobs {
		if cmp.Or(j.Manifest, suiteName) == name {
			suite.Cases = append(suite.Cases, r.jobCases(j)...)
		}
	}
	suite.Time = sumOf(suite.Cases)
	return suite
}

// describe adds the attempts and the output of a container to its suite.
func (r Run) describe(suite *junitSuite, p *v1.Pod, role summary.Role) {
	if !hasRun(role.Status) {
		return
	}
	name := shortName(p) + "/" + role.Container.Name
	suite.Properties.All = append(suite.Properties.All, junitProperty{
		Name: "attempts of " + name, Value: fmt.Sprint(role.Status.RestartCount + 1),
	})
	if r.Output == nil {
		return
	}
	out, errOut := r.Output(p, role.Status)
	for _, to := range []struct {
		all  *string
		text string
	}{{&suite.Out.Text, out}, {&suite.Err.Text, errOut}} {
		if to.text != "" {
			*to.all = bounded(*to.all+"=== "+name+"\n"+to.text, maxSuiteText)
		}
	}
}

// hasRun reports whether a container has run in this run.
func hasRun(s *v1.ContainerStatus) bool {
	return s != nil && (s.State.Running != nil || lastExit(*s) != nil)
}

// casesOf returns a case per container of p.
func (r Run) casesOf(p *v1.Pod) []junitCase {
	var cases []junitCase
	key, accused := pod.KeyOf(p), false
	for _, role := range summary.InitialFirst(summary.Roles(p)) {
		c := junitCase{
			Name: role.Container.Name, ClassName: p.Namespace + "." + pod.ManifestName(p),
			Time: inSeconds(r.Runs[key][role.Container.Name]),
		}
		r.judge(&c, p, role)
		accused = accused || c.Failure != nil || c.Error != nil
		cases = append(cases, c)
	}
	if !accused && len(cases) > 0 {
		r.accuse(cases, p)
	}
	return cases
}

// judge sets the result of a container's case.
func (r Run) judge(c *junitCase, p *v1.Pod, role summary.Role) {
	s := role.Status
	switch {
	case !hasRun(s) && s != nil && r.problem(p) != "" && s.State.Waiting != nil && s.State.Waiting.Message != "":
		c.Failure = &junitMessage{Message: r.problem(p), Type: s.State.Waiting.Reason, Text: notDoneText(p)}
	case !hasRun(s):
		c.Skipped = &junitSkipped{Message: "never ran"}
		if why := summary.Why(p, time.Now()); why != "" {
			c.Skipped.Message += ": " + why
		}
	case r.problemOf(p, role) == "":
	case r.Failed(p):
		c.Failure = &junitMessage{Message: r.problemOf(p, role), Type: "Error"}
		c.Failure.Text = r.withOutput(lastExits(p), p, role)
		if t := lastExit(*s); t != nil {
			c.Failure.Type = cmp.Or(t.Reason, "Error")
		}
	case s.State.Terminated == nil:
		c.Error = &junitMessage{Message: r.notDone(p), Type: "NotDone", Text: r.withOutput(notDoneText(p), p, role)}
	}
}

// accuse gives the failure of a pod, if it has one that belongs to no container, to one of its cases.
func (r Run) accuse(cases []junitCase, p *v1.Pod) {
	c := &cases[len(cases)-1]
	for i := range slices.Backward(cases) {
		if cases[i].Skipped != nil {
			c = &cases[i]
		}
	}
	switch {
	case r.Failed(p):
		text := cmp.Or(r.failure(p), summary.Of(p).Text)
		c.Failure = &junitMessage{Message: text, Type: cmp.Or(p.Status.Reason, "Error"), Text: notDoneText(p)}
	case !r.Done(p) && !r.Stranded[pod.KeyOf(p)]:
		c.Error = &junitMessage{Message: r.notDone(p), Type: "NotDone", Text: notDoneText(p)}
	default:
		return
	}
	c.Skipped = nil
}

// notDone returns why a pod that is not done is not, as a message.
func (r Run) notDone(p *v1.Pod) string { return whyNotDone(r) + "not done: " + lastState(p) }

// withOutput returns a text and, after it, the end of what a container has written.
func (r Run) withOutput(text string, p *v1.Pod, role summary.Role) string {
	if r.Output == nil {
		return bounded(text, maxCaseText)
	}
	out, errOut := r.Output(p, role.Status)
	return bounded(strings.TrimSpace(bounded(text, maxCaseText/2)+"\n"+bounded(out+errOut, maxCaseText/2)), maxCaseText)
}

// sequences are the escape sequences of terminals for colours and the like.
var sequences = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

// legible returns text without colours and, instead of characters that XML cannot have, with U+FFFD.
func legible(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0xd800 && r < 0xe000 || r == 0xfffe || r == 0xffff {
			return '\ufffd'
		}
		return r
	}, strings.ReplaceAll(sequences.ReplaceAllString(text, ""), "\r\n", "\n"))
}

// bounded returns the end of a text that is longer than most bytes.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	if _, after, found := strings.Cut(text, "\n"); found {
		text = after
	}
	return "…\n" + strings.ToValidUTF8(text, "")
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

// sumOf returns the sum of the times of cases as they are written, which readers of a report expect of its suite.
func sumOf(cases []junitCase) string {
	sum := 0.0
	for _, c := range cases {
		seconds, _ := strconv.ParseFloat(c.Time, 64) // as inSeconds writes it
		sum += seconds
	}
	return fmt.Sprintf("%.3f", sum)
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
