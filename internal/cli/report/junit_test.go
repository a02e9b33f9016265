package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// written writes a report, checks it by the schema, and returns it.
func written(t *testing.T, suites junitSuites) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.xml")
	f := File{Path: file}
	must(t, f.write(suites))
	text, err := os.ReadFile(file)
	must(t, err)
	if _, err := exec.LookPath("xmllint"); err != nil {
		t.Log("not checked by the schema: xmllint is not installed (Debian: libxml2-utils)")
		return string(text)
	}
	if out, err := exec.Command("xmllint", "--noout", "--schema", "testdata/junit.xsd", file).CombinedOutput(); err != nil {
		t.Errorf("%s\n%s", out, text)
	}
	return string(text)
}

// ofManifest sets the manifest and the node of a pod.
func ofManifest(p *v1.Pod, file string) *v1.Pod {
	p.Annotations = map[string]string{manifest.AnnotationManifest: file}
	p.Name, p.Spec.NodeName = p.Name+"-n", "N"
	return p
}

// TestReport: a suite a manifest, a case a container, without the node's name; what never ran is skipped; attempts are
// properties, and the output is the suite's.
func TestReport(t *testing.T) {
	t.Parallel()
	r := notDone()
	r.Runs = map[pod.Key]map[string]time.Duration{{Namespace: "default", Name: "good-n"}: {"c": 1234 * time.Millisecond}}
	r.TimedOut = true
	r.Output = func(p *v1.Pod, s *v1.ContainerStatus) (string, string) {
		return "out of " + p.Name + "\x00\n", strings.Repeat("é\n", maxSuiteText)
	}
	for i, p := range r.Pods {
		ofManifest(p, fmt.Sprintf("ci/%d.yaml", i/3))
	}
	failed := r.Pods[0]
	failed.Status.Phase = v1.PodFailed
	failed.Spec.InitContainers = []v1.Container{{Name: "first"}}
	failed.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "first", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"},
	}}}
	failed.Status.ContainerStatuses = nil
	text := written(t, junitOf(r))
	for _, want := range []string{
		`<testsuite name="ci/0.yaml" package="0" id="0"`, `<testsuite name="ci/1.yaml" package="1" id="1"`,
		`tests="4" failures="1" errors="1" skipped="1"`,
		`<testcase name="first" classname="default.crashes" time="0.000">`, `message="failed: Error, exit code 3" type="Error"`,
		`<skipped message="never ran`, `<testcase name="c" classname="default.good" time="1.234"></testcase>`,
		`<property name="attempts of killed/c" value="2"></property>`, "=== good/c\nout of good-n",
		`<error message="timed out, not done: `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %s", want)
		}
	}
	if strings.Contains(text, `"default.good-n"`) || len(text) > 4*maxSuiteText {
		t.Errorf("%d bytes", len(text))
	}
	if t.Failed() {
		t.Log(text[:min(len(text), 3000)])
	}
	written(t, (&File{Began: time.Now()}).failed(errors.New("one\ntwo <\x00\x1b[31mred]]>")))
}

// TestTimeOfSuite: a suite takes as long as its cases together, as they are written.
func TestTimeOfSuite(t *testing.T) {
	t.Parallel()
	r := Run{Done: func(*v1.Pod) bool { return true }, Durations: map[pod.Key]time.Duration{}, Runs: map[pod.Key]map[string]time.Duration{}}
	for name, took := range map[string]time.Duration{"a": 2018400 * time.Microsecond, "b": 1519400 * time.Microsecond} {
		p := notDonePod(name, v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}})
		r.Pods, r.Durations[pod.KeyOf(p)] = append(r.Pods, p), 2084*time.Millisecond
		r.Runs[pod.KeyOf(p)] = map[string]time.Duration{"c": took}
	}
	if got := junitOf(r).Suites[0].Time; got != "3.537" {
		t.Errorf("2.018 and 1.519 make %s", got)
	}
}

// TestReportBlamesSomebody: a pod that failed or is not done for no reason of a container's has a case that says so.
func TestReportBlamesSomebody(t *testing.T) {
	t.Parallel()
	evicted := notDonePod("evicted", v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}})
	evicted.Status.Phase, evicted.Status.Reason, evicted.Status.Message = v1.PodFailed, "Evicted", "too much"
	stuck := notDonePod("stuck", v1.ContainerStatus{State: v1.ContainerState{
		Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"},
	}})
	waits := notDonePod("waits", v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}})
	r := Run{
		Pods: []*v1.Pod{evicted, stuck, waits}, Done: func(p *v1.Pod) bool { return p == stuck || p == evicted },
		Problem: func(p *v1.Pod) string {
			if p == stuck {
				return "cannot start: no such image"
			}
			return ""
		},
	}
	for _, stranded := range []bool{false, true} {
		r.Stranded = map[pod.Key]bool{pod.KeyOf(waits): stranded}
		var got []string
		for _, c := range junitOf(r).Suites[0].Cases {
			switch {
			case c.Failure != nil:
				got = append(got, c.Failure.Message)
			case c.Error != nil:
				got = append(got, c.Error.Message)
			default:
				got = append(got, "skipped")
			}
		}
		want := []string{"Evicted: too much", "cannot start: no such image", "not done: Running"}
		if stranded {
			want[2] = "skipped"
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("stranded %t: got %q, want %q", stranded, got, want)
		}
		written(t, junitOf(r))
	}
}

// TestReportMergesReports: reports of containers are part of podrun's, valid by the schema whatever is in them. What
// is no report, or is none beneath the volume, is left out with a warning.
func TestReportMergesReports(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir()}
	p := ofManifest(notDonePod("tests", v1.ContainerStatus{}), "a.yaml")
	p.Status.Phase = v1.PodSucceeded
	p.Spec.Volumes = []v1.Volume{{Name: "out", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	p.Annotations[pod.AnnotationJUnit] = "out:x/*.xml"
	dir := filepath.Join(dirs.Revision(p.UID).EmptyDir("out"), "x")
	must(t, os.MkdirAll(dir, 0o755))
	secret := filepath.Join(t.TempDir(), "secret.xml")
	const secretText = `<testsuite name="secret"><testcase name="secret"/></testsuite>`
	must(t, os.WriteFile(secret, []byte(secretText), 0o600))
	for name, text := range map[string]string{
		"a.xml": `<testsuites><testsuite name=" go
test " time="1,234.5" timestamp="2026-01-31T03:04:05.678Z"><testcase name="one" classname="k" time="NaN"/><testcase name="">
			<failure message="no">why</failure></testcase><testsuite><testcase name="nested"><skipped/></testcase></testsuite>
			<system-out>said</system-out></testsuite></testsuites>`,
		"b.xml":    `<testsuite name="` + strings.Repeat("n", 5000) + `" timestamp="2026-02-31T03:04:05Z"><testcase><error/></testcase></testsuite>`,
		"bad.xml":  `<testsuite><testcase>`,
		"html.xml": `<html/>`,
		"big.xml":  strings.Repeat(" ", maxReport+1),
		"bomb.xml": `<!DOCTYPE a [<!ENTITY x "lol">]><testsuite name="&x;"><testcase/></testsuite>`,
		"deep.xml": strings.Repeat("<testsuite>", 200_000),
		"not.txt":  secretText,
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	must(t, os.Symlink(secret, filepath.Join(dir, "link.xml")))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe.xml"), 0o644))
	must(t, os.Mkdir(filepath.Join(dir, "dir.xml"), 0o755))
	var warnings []string
	r := Run{
		Pods: []*v1.Pod{p}, Done: func(*v1.Pod) bool { return true }, Dirs: dirs,
		Warn: func(text string) { warnings = append(warnings, text) },
	}
	text := written(t, junitOf(r))
	for _, want := range []string{
		`name="go test" package="tests" id="1" timestamp="2026-01-31T03:04:05"`, `time="1234.500"`,
		`<testcase name="one" classname="k" time="0.000">`, `<failure message="no" type="Error"><![CDATA[why]]></failure>`,
		`<testcase name="nested"`, `<system-out><![CDATA[said]]></system-out>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "2026-02-31") {
		t.Errorf("a day that does not exist:\n%s", text)
	}
	if len(warnings) != 8 || strings.Contains(text, "secret") {
		t.Errorf("%d warnings: %s\n%s", len(warnings), strings.Join(warnings, "\n"), text)
	}
	// The directory itself may be a link, too.
	must(t, os.RemoveAll(dir))
	must(t, os.Symlink(filepath.Dir(secret), dir))
	warnings = nil
	if text := written(t, junitOf(r)); strings.Contains(text, "secret") || len(warnings) != 1 {
		t.Errorf("%q\n%s", warnings, text)
	}
	if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
		t.Error(err)
	}
}
