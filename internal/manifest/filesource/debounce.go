package filesource

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// absence is how long a file has to be away before it is taken for removed: many editors move the old file
// aside before they write the new one.
const absence = 100 * time.Millisecond

// stay makes of what a look found that a file which is not there stays for a moment with what it had.
func (e *entry) stay(one scanResult, now time.Time) scanResult {
	switch {
	case !one.gone:
		one.changed = one.changed || !e.away.IsZero() // others may have stood in for it
		e.away = time.Time{}
	case e.hash == "" && e.err == nil && e.busy.IsZero(): // nothing was known of it
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

// there are the names that files have which are there.
func (s *scanner) there() map[manifest.Name]bool {
	there := map[manifest.Name]bool{}
	for _, e := range s.files {
		if !e.away.IsZero() {
			continue
		}
		for _, p := range e.pods {
			there[manifest.Name{Key: pod.KeyOf(p)}] = true
		}
		for _, o := range e.objects {
			there[o.Name()] = true
		}
	}
	return there
}

// offers is what a file has; of one that is away, what no other has, for it may have been renamed.
func (e *entry) offers(there map[manifest.Name]bool) ([]*v1.Pod, []manifest.Object) {
	if e.away.IsZero() {
		return e.pods, e.objects
	}
	pods := slices.DeleteFunc(slices.Clone(e.pods), func(p *v1.Pod) bool { return there[manifest.Name{Key: pod.KeyOf(p)}] })
	objects := slices.DeleteFunc(slices.Clone(e.objects), func(o manifest.Object) bool { return there[o.Name()] })
	return pods, objects
}
