package agent

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"podrun.io/podrun/internal/host"
)

const (
	// gcPercent trades memory for time when many pods start at once: the live heap is small.
	gcPercent = 200
	// letGoEvery is how often memory is given back that only a start or a burst of work needed.
	letGoEvery = 15 * time.Second
)

// keepSmall gives back what serve does not need at rest, until ctx ends. A user's own GOGC is left as it is.
func keepSmall(ctx context.Context, log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	every := time.NewTicker(letGoEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			if err := host.LetTextGo(); err != nil {
				log.Debug("memory is not given back", "why", err)
				return
			}
		}
	}
}
