package agent

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"podrun.io/podrun/internal/sys"
)

const (
	// roomyHeap is the size to which the heap may grow before garbage is collected, or twice what lives if that
	// is more: many pods that start at once have the processors to themselves. It is given back at rest.
	roomyHeap = 32 << 20
	// smallHeap is what a heap at rest may keep of it.
	smallHeap = 16 << 20
	// letGoEvery is how often memory is given back that only a start or a burst of work needed.
	letGoEvery = 15 * time.Second
)

// What the runtime's metrics call the heap that the last collection found alive, and all that the heap has of
// the system's memory.
const (
	live    = "/gc/heap/live:bytes"
	objects = "/memory/classes/heap/objects:bytes"
	unused  = "/memory/classes/heap/unused:bytes"
	free    = "/memory/classes/heap/free:bytes"
)

// keepSmall gives back what serve does not need at rest, until ctx ends. A user's own GOGC is left as it is.
func keepSmall(ctx context.Context, log *slog.Logger) {
	own := os.Getenv("GOGC") == ""
	if own {
		debug.SetGCPercent(heapLimit(metric(live)))
	}
	every := time.NewTicker(letGoEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			if metric(objects, unused, free) > smallHeap {
				debug.FreeOSMemory()
			}
			if own {
				debug.SetGCPercent(heapLimit(metric(live)))
			}
			if err := sys.LetTextGo(); err != nil {
				log.Debug("memory is not given back", "why", err)
				return
			}
		}
	}
}

// heapLimit is the garbage, in percent of the living heap, with which the heap reaches roomyHeap.
func heapLimit(living uint64) int {
	const least, most = 100, 800
	return min(max(roomyHeap*100/max(int(living), 1)-100, least), most)
}

// metric is the sum of metrics of the runtime that are counts of bytes.
func metric(names ...string) (sum uint64) {
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}
