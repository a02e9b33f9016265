package agent

import (
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// Owners reports which processes own pods, for the commands that show pods.
type Owners struct{ Dirs layout.Dirs }

// Kept is the function Kept.
func (o Owners) Kept(key pod.Key) (kept, known bool) { return Kept(o.Dirs, key) }

// LastKept is the function LastKept.
func (o Owners) LastKept(key pod.Key) time.Time { return LastKept(o.Dirs, key) }

// LastSeen is the function LastSeen.
func (o Owners) LastSeen() (at time.Time, alive bool) { return LastSeen(o.Dirs) }

// JustBegun is the function JustBegun.
func (o Owners) JustBegun(ago time.Duration) bool { return JustBegun(o.Dirs, ago) }
