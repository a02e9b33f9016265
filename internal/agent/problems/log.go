// Package problems reports what is wrong with manifests: in the log and as events, each once (Log),
// and in a file for other commands (File, Read).
//
// The package does not find problems, and no decision depends on it.
//
// Begin reading at Log.
package problems

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// Log logs each manifest problem and warning once, and once when it is resolved. It skips
// those that their source logs itself at its own intervals.
type Log struct {
	// Events records them too. May be nil.
	Events             Recorder
	problems, warnings map[string]bool
}

// Recorder records events. event.Recorder implements it.
type Recorder interface{ Record(e pod.Event) }

// Report logs how the problems of d differ from those of the call before.
func (t *Log) Report(log *slog.Logger, d manifest.Desired) {
	t.problems = reported(t.problems, d.Problems, func(p manifest.Problem) {
		log.Error("manifest cannot be used; its running pods keep running",
			"manifest", p.Origin.Path, "err", p.Err.Error())
		if t.Events != nil { // a manifest that was never valid has no pod whose status shows it
			t.Events.Record(pod.Event{Warning: true, Reason: "FailedValidation", Message: p.Err.Error()})
		}
	}, func(was string) { log.Info("manifest problem is gone", "was", was) })
	t.warnings = reported(t.warnings, d.Warnings, func(p manifest.Problem) {
		log.Warn("manifest is used, but has a problem", "manifest", p.Origin.Path, "err", p.Err.Error())
		t.record(d, p)
	}, func(was string) { log.Info("manifest warning is gone", "was", was) })
}

// record records a warning as an event of each pod of the file or, if the file has none (as for a
// directory), of the node.
func (t *Log) record(d manifest.Desired, p manifest.Problem) {
	if t.Events == nil {
		return
	}
	e := pod.Event{Warning: true, Reason: "InsecureManifest", Message: p.Err.Error()}
	if field := (manifest.FieldError{}); errors.As(p.Err, &field) {
		e.Reason = "IgnoredField"
		if field.Field == "kind" || strings.HasSuffix(field.Field, "].kind") { // an object that is passed over
			e.Reason = "IgnoredKind"
			t.Events.Record(e)
			return
		}
	}
	if of := d.Pods[p.Key]; of != nil && manifest.OriginOf(of) == p.Origin {
		e.Key, e.UID = p.Key, of.UID
		t.Events.Record(e)
		return
	}
	ofPods := false
	for key, of := range d.Pods {
		if manifest.OriginOf(of) == p.Origin {
			e.Key, e.UID, ofPods = key, of.UID, true
			t.Events.Record(e)
		}
	}
	if !ofPods {
		t.Events.Record(e)
	}
}

// reported calls came for each problem that is new, calls went for each that is resolved, and
// returns the texts of the current ones.
func reported(
	before map[string]bool, problems []manifest.Problem, came func(manifest.Problem), went func(string),
) map[string]bool {
	now := map[string]bool{}
	for _, p := range problems {
		if p.Logged {
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
