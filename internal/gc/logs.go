package gc

import (
	"context"
	"time"
)

// Logs are those of pods.
type Logs interface {
	// Remove removes the logs of pods that are gone and that nothing has happened to for that long, and returns
	// what it removed.
	Remove(ctx context.Context, age time.Duration) ([]string, error)
}

// lostLogAge is how long the logs of a pod stay whose end podrun did not see: what it left might be looked for.
const lostLogAge = 24 * time.Hour

// logs removes those of pods that are gone whose time has come; at once where there is too little space for more.
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
		k.o.Log.Info("removed the logs of a pod that is gone", "logs", what)
	}
	if err != nil {
		k.o.Log.Warn("logs of pods that are gone stay", "why", err)
	}
}

// logsPressed reports that a disk with logs on it has too little space.
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
