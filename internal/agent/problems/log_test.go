package problems

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// recorded are the recorded events, one per line.
type recorded []string

func (r *recorded) Record(e pod.Event) {
	*r = append(*r, fmt.Sprintf("%s/%s %s %s", e.Key.Namespace, e.Key.Name, e.Reason, e.Message))
}

func TestWarningsAreEventsOfTheirPods(t *testing.T) {
	t.Parallel()
	of := func(name, path string) *v1.Pod {
		p := &v1.Pod{}
		p.Namespace, p.Name = "default", name
		p.Annotations = map[string]string{manifest.AnnotationSource: manifest.SourceFile, manifest.AnnotationManifest: path}
		return p
	}
	d := manifest.Desired{Pods: map[pod.Key]*v1.Pod{}}
	for _, p := range []*v1.Pod{of("a", "/m/a.yaml"), of("b", "/m/b.yaml")} {
		d.Pods[pod.KeyOf(p)] = p
	}
	for _, path := range []string{"/m", "/m/a.yaml"} {
		d.Warnings = append(d.Warnings, manifest.Problem{Origin: manifest.Origin{Source: manifest.SourceFile, Path: path}, Err: errors.New(path + " is loose")})
	}
	var got recorded
	reports := Log{Events: &got}
	for range 2 { // the second says nothing new
		reports.Report(slog.New(slog.DiscardHandler), d)
	}
	if want := []string{"/ InsecureManifest /m is loose", "default/a InsecureManifest /m/a.yaml is loose"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
