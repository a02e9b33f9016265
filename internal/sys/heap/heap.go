// Package heap keeps the memory of a process small that works in bursts: the heap may grow without
// many collections while there is work, and is returned to the system at rest.
//
// Begin reading at Tune.
package heap

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// roomyHeap is the size to which the heap may grow before garbage is collected, unless twice
	// the live heap is more. So the processors are free for the pods when many start at once. The
	// memory is returned at rest.
	roomyHeap = 32 << 20
	// smallHeap is how much unused and free memory the heap may hold at rest.
	smallHeap = 16 << 20
	// letGoEvery is how often memory that only a start or a burst of work needed is returned to the
	// system.
	letGoEvery = 15 * time.Second
)

// The names in runtime/metrics of the heap that was live at the last collection, and of all memory
// that the heap has from the system.
const (
	live    = "/gc/heap/live:bytes"
	objects = "/memory/classes/heap/objects:bytes"
	unused  = "/memory/classes/heap/unused:bytes"
	free    = "/memory/classes/heap/free:bytes"
)

// Tune returns memory that the process does not need at rest to the system, until ctx ends. A GOGC
// that the user has set is not changed.
func Tune(ctx context.Context, log *slog.Logger) {
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
			if err := letTextGo(); err != nil {
				log.Debug("returning memory to the system failed", "err", err)
				return
			}
		}
	}
}

// heapLimit returns the GC percentage with which the heap grows to roomyHeap.
func heapLimit(living uint64) int {
	const least, most = 100, 800
	return min(max(roomyHeap*100/max(int(living), 1)-100, least), most)
}

// metric returns the sum of the named runtime metrics, which count bytes.
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
