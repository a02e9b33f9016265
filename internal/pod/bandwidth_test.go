package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestBandwidth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"1k": 1000, "10M": 10_000_000, "1Mi": 1 << 20, "1P": 1e15, "999": 0, "1Pi": 0, "-1M": 0, "fast": 0, "": 0} {
		got, err := ParseBandwidth(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	p := &v1.Pod{}
	if got := BandwidthOf(p); got != (Bandwidth{}) {
		t.Errorf("%+v", got)
	}
	p.Annotations = map[string]string{AnnotationEgress: "2M"}
	if got := BandwidthOf(p); got != (Bandwidth{Egress: 2_000_000}) {
		t.Errorf("%+v", got)
	}
}
