package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The limits of what is read of reports that containers have written. Without them a small report, of suites in
// suites, costs time and memory by the square of its size.
const (
	maxMerged = 20_000 // cases of a pod
	maxNested = 100    // elements in each other
)

// errEnough means that no more of a pod's reports is read; errLate says why.
var (
	errEnough = errors.New("are read in part only")
	errLate   = fmt.Errorf("take too long to read and %w", errEnough)
)

// readCase is what is read of a case.
type readCase struct {
	Name      string       `xml:"name,attr"`
	ClassName string       `xml:"classname,attr"`
	Time      string       `xml:"time,attr"`
	Skipped   *readMessage `xml:"skipped"`
	Error     *readMessage `xml:"error"`
	Failure   *readMessage `xml:"failure"`
}

type readMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// suiteReader reads the reports that the containers of a pod have written.
type suiteReader struct {
	run Run
	pod *v1.Pod
	// suites are the suites with cases of all reports, each before those in it. cases is how many they have.
	suites []junitSuite
	cases  int
}

// read adds the suites of a report. It adds nothing if the report cannot be read; if the error is errEnough, it
// has added some of them.
func (s *suiteReader) read(file string, data []byte) error {
	d := xml.NewTokenDecoder(&limitedTokens{Decoder: xml.NewDecoder(bytes.NewReader(data)), until: s.run.until})
	root, err := firstElement(d)
	if err != nil {
		return err
	}
	if root.Name.Local != "testsuites" && root.Name.Local != "testsuite" {
		return fmt.Errorf("its root element is %q, not testsuites or testsuite", root.Name.Local)
	}
	suites, cases := len(s.suites), s.cases
	if err = s.suite(d, root, file); err != nil && !errors.Is(err, errEnough) {
		s.suites, s.cases = s.suites[:suites], cases
	}
	return err
}

func firstElement(d *xml.Decoder) (xml.StartElement, error) {
	for {
		token, err := d.Token()
		if err != nil {
			return xml.StartElement{}, err
		}
		if start, is := token.(xml.StartElement); is {
			return start, nil
		}
	}
}

// suite reads the rest of an element with suites or cases in it, and adds it if it has cases.
func (s *suiteReader) suite(d *xml.Decoder, start xml.StartElement, file string) (err error) {
	suite, at := s.begin(start, file), len(s.suites)
	defer func() {
		if len(suite.Cases) > 0 {
			s.suites = slices.Insert(s.suites, at, suite)
		}
	}()
	for {
		token, err := d.Token()
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.EndElement:
			return nil
		case xml.StartElement:
			if err := s.element(d, t, file, &suite); err != nil {
				return err
			}
		}
	}
}

// element reads an element of a suite.
func (s *suiteReader) element(d *xml.Decoder, start xml.StartElement, file string, suite *junitSuite) error {
	var text string
	switch start.Name.Local {
	case "testsuite":
		return s.suite(d, start, file)
	case "testcase":
		if s.cases == maxMerged {
			return fmt.Errorf("have more than %d cases and %w", maxMerged, errEnough)
		}
		var read readCase
		if err := d.DecodeElement(&read, &start); err != nil {
			return err
		}
		s.cases++
		suite.Cases = append(suite.Cases, read.report(suite.Package))
		return nil
	case "system-out":
		err := d.DecodeElement(&text, &start)
		suite.Out.Text = bounded(text, maxContainer)
		return err
	case "system-err":
		err := d.DecodeElement(&text, &start)
		suite.Err.Text = bounded(text, maxContainer)
		return err
	}
	return d.Skip()
}

// begin returns a suite without cases.
func (s *suiteReader) begin(start xml.StartElement, file string) junitSuite {
	attributes := map[string]string{}
	for _, a := range start.Attr {
		attributes[a.Name.Local] = a.Value
	}
	suite := newSuite(oneLine(attributes["name"], file), s.run.Began)
	suite.Package = shortName(s.pod)
	if s.pod.Spec.NodeName != "" {
		suite.Hostname = s.pod.Spec.NodeName
	}
	const seconds = "2006-01-02T15:04:05" // what a schema allows of a time
	if at := attributes["timestamp"]; len(at) >= len(seconds) {
		if _, err := time.Parse(seconds, at[:len(seconds)]); err == nil {
			suite.Timestamp = at[:len(seconds)]
		}
	}
	suite.Time = decimal(attributes["time"])
	return suite
}

// report returns the case, in a suite of the package.
func (c *readCase) report(suite string) junitCase {
	one := junitCase{Name: oneLine(c.Name, "?"), ClassName: oneLine(c.ClassName, suite), Time: decimal(c.Time)}
	switch {
	case c.Failure != nil:
		one.Failure = c.Failure.bounded()
	case c.Error != nil:
		one.Error = c.Error.bounded()
	case c.Skipped != nil:
		one.Skipped = &junitSkipped{Message: bounded(c.Skipped.Message, maxCaseText)}
	}
	return one
}

func (m *readMessage) bounded() *junitMessage {
	return &junitMessage{
		Message: bounded(m.Message, maxCaseText), Type: oneLine(m.Type, "Error"), Text: bounded(m.Text, maxCaseText),
	}
}

// maxName is the maximum length of a name in a report.
const maxName = 1000

// oneLine returns a name, or another one if it is empty.
func oneLine(name, otherwise string) string {
	name = strings.Join(strings.Fields(name), " ")
	if name == "" {
		return otherwise
	}
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// decimal returns a time in seconds as a schema allows it. Some writers separate thousands.
func decimal(text string) string {
	seconds, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(text), ",", ""), 64)
	const most = 1e9
	if err != nil || !(seconds >= 0 && seconds < most) {
		seconds = 0
	}
	return fmt.Sprintf("%.3f", seconds)
}

// limitedTokens are the tokens of a document, of which no element is too deep. Reading them ends at a time.
type limitedTokens struct {
	*xml.Decoder
	depth int
	until time.Time // zero: never
}

// Token implements xml.TokenReader. The decoder that reads from it checks that elements end as they begin.
func (l *limitedTokens) Token() (xml.Token, error) {
	token, err := l.RawToken()
	switch token.(type) {
	case xml.StartElement:
		l.depth++
	case xml.EndElement:
		l.depth--
	}
	switch {
	case err != nil:
		return token, err
	case l.depth > maxNested:
		return nil, fmt.Errorf("it has more than %d elements in each other", maxNested)
	case late(l.until):
		return nil, errLate
	}
	return token, nil
}

// late reports whether a time is over; zero never is.
func late(until time.Time) bool { return !until.IsZero() && time.Now().After(until) }
