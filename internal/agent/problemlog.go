package agent

import (
	"log/slog"
	"maps"
	"slices"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// problemLog logs what is wrong with manifests once, and once when it is mended. What is wrong with a URL's
// the source logs itself, in its own rhythm.
type problemLog struct {
	problems, warnings map[string]bool
	events             reconcile.Recorder // nil: nobody keeps them
}

func (t *problemLog) report(log *slog.Logger, d manifest.Desired) {
	t.problems = reported(t.problems, d.Problems, func(p manifest.Problem) {
		log.Error("manifest cannot be used; what runs from it goes on", "manifest", p.Origin.Path, "why", p.Err.Error())
		if t.events != nil { // one that was never good has no pod to show it
			t.events.Record(pod.Event{Warning: true, Reason: "FailedValidation", Message: p.Err.Error()})
		}
	}, func(was string) { log.Info("manifest problem is gone", "was", was) })
	t.warnings = reported(t.warnings, d.Warnings, func(p manifest.Problem) {
		log.Warn("manifest is used, but should not be as it is", "manifest", p.Origin.Path, "why", p.Err.Error())
		t.record(d, p)
	}, func(was string) { log.Info("manifest warning is gone", "was", was) })
}

// record makes an event of a warning for each pod of the file, or, if it is of a directory, for the node.
func (t *problemLog) record(d manifest.Desired, p manifest.Problem) {
	if t.events == nil {
		return
	}
	e := pod.Event{Warning: true, Reason: "InsecureManifest", Message: p.Err.Error()}
	ofPods := false
	for key, of := range d.Pods {
		if manifest.OriginOf(of) == p.Origin {
			e.Key, e.UID, ofPods = key, of.UID, true
			t.events.Record(e)
		}
	}
	if !ofPods {
		t.events.Record(e)
	}
}

// reported calls came for each problem that is not among those before, went for each that is there no more,
// and returns the texts of those that are.
func reported(before map[string]bool, problems []manifest.Problem, came func(manifest.Problem), went func(string)) map[string]bool {
	now := map[string]bool{}
	for _, p := range problems {
		if p.Origin.Source == manifest.SourceHTTP {
			continue
		}
		text := p.Err.Error()
		if !before[text] && !now[text] {
			came(p)
		}
		now[text] = true
	}
	for _, text := range slices.Sorted(maps.Keys(before)) {
		if !now[text] {
			went(text)
		}
	}
	return now
}
