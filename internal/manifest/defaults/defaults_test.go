package defaults

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPullPolicy(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]v1.PullPolicy{
		"i": v1.PullAlways, "i:latest": v1.PullAlways, "host:5000/i": v1.PullAlways, "i:1": v1.PullIfNotPresent,
		"host:5000/i:1": v1.PullIfNotPresent, "i@sha256:0": v1.PullIfNotPresent, "i:latest@sha256:0": v1.PullIfNotPresent,
		"i@" + digest: v1.PullIfNotPresent, "i:1@" + digest: v1.PullIfNotPresent, "i:latest@" + digest: v1.PullAlways,
		"UPPER": v1.PullIfNotPresent, "https://i": v1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s", image, got)
		}
	}
}
