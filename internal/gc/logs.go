package gc

import (
	"context"
	"time"
)

// Logs are the logs of pods.
type Logs interface {
	// Remove removes the logs of removed pods that have not changed for that long, and returns what
	// it removed.
	Remove(ctx context.Context, age time.Duration) ([]string, error)
}

// lostLogAge is how long the logs of a pod are kept if podrun did not observe its end: somebody
// might still need them.
const lostLogAge = 24 * time.Hour

// logs removes the logs of removed pods that have reached their age, and all of them while a disk
// with logs is under pressure.
func (k *Keeper) logs(ctx context.Context) {
	if k.o.Logs == nil {
		return
	}
	age := k.o.Policy.LogAge
	if age == 0 {
		age = lostLogAge
	}
	period := min(max(age, diskPeriod), imagePeriod)
	if k.logsPressed() {
		age, period = 0, pressedPeriod
	}
	if time.Since(k.cleared) < period {
		return
	}
	k.cleared = time.Now()
	removed, err := k.o.Logs.Remove(ctx, age)
	for _, what := range removed {
		k.o.Log.Info("removed the logs of a removed pod", "logs", what)
	}
	if err != nil {
		k.o.Log.Warn("removing the logs of removed pods failed", "err", err)
	}
}

// logsPressed reports whether a disk with logs is under pressure.
func (k *Keeper) logsPressed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.o.Disks {
		if d.Logs && k.pressure[d.Name] != "" {
			return true
		}
	}
	return false
}
