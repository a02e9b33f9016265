package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// AnnotationJUnit names the JUnit reports that the containers of a pod write, for the report of podrun
// once: VOLUME:PATH with commas between. The last element of the path may have the wildcards of path.Match.
const AnnotationJUnit = "podrun.io/junit"

// JUnitReport are reports in a volume.
type JUnitReport struct{ Volume, Path string }

// JUnitReports returns what AnnotationJUnit names.
func JUnitReports(p *v1.Pod) []JUnitReport {
	text, ok := p.Annotations[AnnotationJUnit]
	if !ok {
		return nil
	}
	var all []JUnitReport
	for _, one := range strings.Split(text, ",") {
		volume, path, _ := strings.Cut(strings.TrimSpace(one), ":")
		all = append(all, JUnitReport{Volume: volume, Path: strings.TrimPrefix(path, "./")})
	}
	return all
}
