package plan_test

import (
	"testing"
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

func TestGrace(t *testing.T) {
	s := func(n float64) *time.Duration { return new(time.Duration(n * float64(time.Second))) }
	for name, c := range map[string]struct {
		manifest float64
		ending   plan.Ending
		want     float64
	}{
		"the manifest's":                        {30, plan.Ending{}, 30},
		"none, alone":                           {0, plan.Ending{}, 0},
		"none, with its pod: the kubelet's 1 s": {0, plan.Ending{Pod: true}, 1},
		"the probe's own, shorter":              {30, plan.Ending{Probe: s(5)}, 5},
		"the probe's own, longer":               {30, plan.Ending{Probe: s(60)}, 60},
		"the probe's own within a user's limit": {30, plan.Ending{Probe: s(60), Most: s(10)}, 10},
		"evicted":                               {30, plan.Ending{Pod: true, Evicted: true}, 1},
		"a shutdown that leaves less":           {30, plan.Ending{Pod: true, Most: s(12)}, 12},
		"a shutdown that leaves more":           {30, plan.Ending{Pod: true, Most: s(60)}, 30},
		"a limit below 1 s, with its pod":       {30, plan.Ending{Pod: true, Most: s(0.5)}, 1},
	} {
		got := plan.Grace(pod.Container{Grace: *s(c.manifest)}, c.ending)
		if got != *s(c.want) {
			t.Errorf("%s: %s instead of %s", name, got, *s(c.want))
		}
	}
}
