package file

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// absence is how long a file must be missing before it counts as removed: many editors move the old
// file aside before they write the new one.
const absence = 100 * time.Millisecond

// stay debounces the removal of a file. It returns the scan result one with this change: a known
// file that is missing counts as unchanged until it was missing for the duration absence.
func (e *entry) stay(one scanResult, now time.Time) scanResult {
	switch {
	case !one.gone:
		one.changed = one.changed || !e.away.IsZero() // other files may have replaced it meanwhile, see offers
		e.away = time.Time{}
	case e.hash == "" && e.err == nil && e.busy.IsZero(): // never read: nothing to retain
	case e.away.IsZero():
		e.away = now
		return scanResult{again: absence}
	case now.Sub(e.away) < absence:
		return scanResult{again: absence - now.Sub(e.away)}
	default:
		one.changed = true
	}
	return one
}

// there returns the names of the pods, objects and workloads in the files that exist.
func (s *scanner) there() map[manifest.Name]bool {
	there := map[manifest.Name]bool{}
	for _, e := range s.files {
		if !e.away.IsZero() {
			continue
		}
		for _, p := range e.last.Pods {
			there[manifest.Name{Key: pod.KeyOf(p)}] = true
		}
		for _, o := range e.last.Objects {
			there[o.Name()] = true
		}
		for _, w := range e.last.Workloads {
			there[nameOf(w)] = true
		}
	}
	return there
}

// offers returns the pods, objects and workloads that a file adds to the snapshot. A missing file adds only
// those that no existing file contains, because it may have been renamed.
func (e *entry) offers(there map[manifest.Name]bool) manifest.Loaded {
	out := e.last
	if e.away.IsZero() {
		return out
	}
	out.Pods = slices.DeleteFunc(slices.Clone(out.Pods), func(p *v1.Pod) bool {
		return there[manifest.Name{Key: pod.KeyOf(p)}]
	})
	out.Objects = slices.DeleteFunc(slices.Clone(out.Objects), func(o manifest.Object) bool {
		return there[o.Name()]
	})
	out.Workloads = slices.DeleteFunc(slices.Clone(out.Workloads), func(w *workload.Workload) bool {
		return there[nameOf(w)]
	})
	return out
}

func nameOf(w *workload.Workload) manifest.Name {
	return manifest.Name{Kind: string(w.Kind), Key: w.Key}
}
