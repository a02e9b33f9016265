package report

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// withReports returns a run of a pod whose volume has these reports, and its warnings.
func withReports(t *testing.T, texts ...string) (Run, *[]string) {
	t.Helper()
	dirs := layout.Dirs{Root: t.TempDir()}
	p := ofManifest(notDonePod("tests", v1.ContainerStatus{}), "a.yaml")
	p.Status.Phase = v1.PodSucceeded
	p.Spec.Volumes = []v1.Volume{{Name: "out", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	p.Annotations[pod.AnnotationJUnit] = "out:*.xml"
	dir := dirs.Revision(p.UID).EmptyDir("out")
	must(t, os.MkdirAll(dir, 0o755))
	for i, text := range texts {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".xml")), []byte(text), 0o644))
	}
	var warnings []string
	return Run{
		Pods: []*v1.Pod{p}, Done: func(*v1.Pod) bool { return true }, Dirs: dirs,
		Warn: func(text string) { warnings = append(warnings, text) },
	}, &warnings
}

// TestReportsOfAnyShape: what reports of containers cost is in proportion to their size, however they are made.
func TestReportsOfAnyShape(t *testing.T) { // not parallel: it measures
	const of = 1 << 20 // bytes of a report
	suite := func(n int, text string) string {
		return "<testsuites>" + strings.Repeat(text, n) + "</testsuites>"
	}
	nested := func(n int) string {
		return strings.Repeat("<testsuite><testcase/>", n) + strings.Repeat("</testsuite>", n)
	}
	for _, c := range []struct {
		name, text, warning string
		suites              int
	}{
		{"suites deep in each other", nested(9000), "it has more than 100 elements in each other", 0},
		{"as deep as may be", suite(of/3400, nested(maxNested-2)), "have more than 20000 cases", maxMerged},
		{"suites", suite(of/34, "<testsuite><testcase/></testsuite>"), "have more than 20000 cases", maxMerged},
		{"empty suites", suite(of/12, "<testsuite/>"), "", 0},
		{"cases", "<testsuite>" + strings.Repeat("<testcase/>", of/11) + "</testsuite>", "have more than 20000 cases", 1},
		{"other elements", suite(1, strings.Repeat("<a>", of/7)+strings.Repeat("</a>", of/7)), "in each other", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := withReports(t, c.text, c.text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			suites := r.merged(r.Pods[0])
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 500*of {
				t.Errorf("podrun has allocated %d MiB for %d bytes", allocated>>20, 2*len(c.text))
			}
			if len(suites) != c.suites || !strings.Contains(strings.Join(*warnings, "\n"), c.warning) {
				t.Errorf("%d suites, warnings: %q", len(suites), *warnings)
			}
		})
	}
}

// TestReportsOfAClaimBehindALink: whoever serves the file system of the claims has put a link in the place of a claim.
func TestReportsOfAClaimBehindALink(t *testing.T) {
	t.Parallel()
	r, warnings := withReports(t, "<testsuite><testcase name='merged'/></testsuite>")
	p := r.Pods[0]
	outside, claim := r.Dirs.Revision(p.UID).EmptyDir("out"), r.Dirs.Claim(p.Namespace, "data")
	source := v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
	p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{PersistentVolumeClaim: &source}
	must(t, os.MkdirAll(filepath.Dir(claim), 0o755))
	must(t, os.Symlink(outside, claim))
	if suites := r.merged(p); len(suites) > 0 || !strings.Contains(strings.Join(*warnings, ""), "follows no symbolic link") {
		t.Errorf("%v, %q", suites, *warnings)
	}
	must(t, os.Remove(claim))
	must(t, os.Rename(outside, claim))
	if suites := r.merged(p); len(suites) != 1 {
		t.Errorf("of a directory: %v, %q", suites, *warnings)
	}
}

// TestReportsThatTakeLong: podrun's own results are written however long the reports of containers take.
func TestReportsThatTakeLong(t *testing.T) {
	t.Parallel()
	r, warnings := withReports(t, "<testsuite><testcase name='merged'/></testsuite>")
	r.until = time.Now().Add(-time.Nanosecond) // the time is over
	file := File{Path: filepath.Join(t.TempDir(), "report.xml"), Began: time.Now()}
	if err := file.Results(r); err != nil {
		t.Error(err)
	}
	report, err := os.ReadFile(file.Path)
	if err != nil || !strings.Contains(string(report), `name="a.yaml"`) || strings.Contains(string(report), "merged") {
		t.Errorf("%v: %s", err, report)
	}
	if len(*warnings) != 1 || !strings.Contains((*warnings)[0], "take too long to read") {
		t.Errorf("%q", *warnings)
	}
}
