package containerd

import (
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/transfer"
	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	registry "podrun.io/podrun/internal/image"
)

// TestGauge: what was there before a pull is part of it, but did not come at any speed.
func TestGauge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	meter := registry.NewMeter(now)
	g := gauge{meter: meter, at: map[string]int64{}}
	read := func(name, event string, at int64) {
		g.read(transfer.Progress{Event: event, Progress: at, Desc: &imagespec.Descriptor{
			MediaType: imagespec.MediaTypeImageLayerGzip, Digest: digest.Digest("sha256:" + name), Size: 1000,
		}})
	}
	want := func(when string, fetched, rate int64, done int) {
		t.Helper()
		if p := meter.Progress(now.Add(time.Second)); p.Fetched != fetched || p.Rate != rate || p.Done != done {
			t.Errorf("%s: %+v", when, p)
		}
	}
	read("present", "already exists", 0)
	read("resumed", "waiting", 0)
	read("resumed", "downloading", 600)
	want("at the start", 1600, 0, 1)
	read("resumed", "downloading", 700)
	want("later", 1700, 100, 1)
	read("resumed", "complete", 0)
	read("present", "extracted", 0)
	want("at the end", 2000, 400, 2)
	read("quick", "complete", 0)
	want("with another", 3000, 1400, 3)
}
