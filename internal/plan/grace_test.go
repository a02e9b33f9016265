package plan

import (
	"testing"
	"time"

	"podrun.io/podrun/internal/pod"
)

// TestGrace: every rule that decides a grace period. Times are seconds before now.
func TestGrace(t *testing.T) {
	t.Parallel()
	const second = time.Second
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tt := range map[string]struct {
		of         Termination
		hook, kill time.Duration
	}{
		"as the manifest says":                   {Termination{Period: 30 * second}, 30 * second, 30 * second},
		"none":                                   {Termination{}, 0, 2 * second},
		"none, the whole pod":                    {Termination{WholePod: true}, second, 2 * second},
		"the probe's own, longer":                {Termination{Period: 5 * second, Probe: new(9 * second)}, 9 * second, 9 * second},
		"the probe's own, shorter":               {Termination{Period: 5 * second, Probe: new(3 * second)}, 3 * second, 3 * second},
		"the probe's own, none":                  {Termination{Period: 5 * second, Probe: new(time.Duration(0))}, 0, 2 * second},
		"the probe's own above an override":      {Termination{Probe: new(9 * second), Limits: GraceLimits{Override: new(4 * second)}}, 4 * second, 4 * second},
		"override":                               {Termination{Period: 30 * second, WholePod: true, Limits: GraceLimits{Override: new(7 * second)}}, 7 * second, 7 * second},
		"override that is longer":                {Termination{Period: 3 * second, Limits: GraceLimits{Override: new(7 * second)}}, 3 * second, 3 * second},
		"override below the pod's least":         {Termination{Period: 30 * second, WholePod: true, Limits: GraceLimits{Override: new(second / 2)}}, second, 2 * second},
		"override of 0":                          {Termination{Period: 30 * second, WholePod: true, Limits: GraceLimits{Override: new(time.Duration(0))}}, 0, 0},
		"at once":                                {Termination{Period: 30 * second, WholePod: true, Limits: GraceLimits{AtOnce: true}}, 0, 0},
		"shutdown":                               {Termination{Period: 30 * second, WholePod: true, Limits: GraceLimits{Shutdown: new(9 * second)}}, 9 * second, 9 * second},
		"shutdown and a shorter override":        {Termination{Period: 30 * second, Limits: GraceLimits{Shutdown: new(9 * second), Override: new(8 * second)}}, 8 * second, 8 * second},
		"override and a shorter shutdown":        {Termination{Period: 30 * second, Limits: GraceLimits{Shutdown: new(5 * second), Override: new(8 * second)}}, 5 * second, 5 * second},
		"shutdown without time":                  {Termination{Period: 30 * second, Limits: GraceLimits{Shutdown: new(time.Duration(0))}}, 0, 0},
		"evicted":                                {Termination{Period: 30 * second, WholePod: true, Evicted: true}, second, 2 * second},
		"10 s after the request":                 {Termination{Period: 30 * second, Signals: pod.Signals{Asked: before(10 * second)}}, 20 * second, 20 * second},
		"over":                                   {Termination{Period: 30 * second, Signals: pod.Signals{Asked: before(40 * second), Signalled: before(40 * second)}}, -10 * second, -10 * second},
		"the hook took all of it":                {Termination{Period: 30 * second, Signals: pod.Signals{Asked: before(30 * second)}}, 0, 2 * second},
		"the hook took all but 1 s":              {Termination{Period: 30 * second, Signals: pod.Signals{Asked: before(29 * second), Signalled: now}}, second, 2 * second},
		"1 s after a late stop signal":           {Termination{Period: 30 * second, Signals: pod.Signals{Asked: before(31 * second), Signalled: before(second)}}, -second, second},
		"the clock was set back":                 {Termination{Period: 30 * second, Signals: pod.Signals{Asked: now.Add(time.Hour)}}, 30 * second, 30 * second},
		"a sidecar after 10 s for others":        {Termination{Period: 30 * second, WholePod: true, Began: before(10 * second)}, 20 * second, 20 * second},
		"a sidecar after more than its period":   {Termination{Period: 30 * second, WholePod: true, Began: before(40 * second)}, 2 * second, 2 * second},
		"a sidecar 5 s after its own request":    {Termination{Period: 30 * second, WholePod: true, Began: before(15 * second), Signals: pod.Signals{Asked: before(5 * second)}}, 15 * second, 15 * second},
		"an evicted sidecar after the others":    {Termination{Period: 30 * second, WholePod: true, Evicted: true, Began: before(second)}, 2 * second, 2 * second},
		"a sidecar that is terminated by itself": {Termination{Period: 30 * second, Signals: pod.Signals{Asked: before(5 * second)}}, 25 * second, 25 * second},
	} {
		tt.of.Now = now
		if hook, kill := Grace(tt.of); hook != tt.hook || kill != tt.kill {
			t.Errorf("%s: %s for the hook, %s until it is killed; want %s, %s", name, hook, kill, tt.hook, tt.kill)
		}
	}
}
