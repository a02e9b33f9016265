package sparkline

import "testing"

// TestLines: what is not known is a gap, a limit is drawn, and the highest sample of a point counts.
func TestLines(t *testing.T) {
	t.Parallel()
	c := newCourse()
	samples := make([]float64, 4*perPoint)
	for i := range samples {
		samples[i] = -1
	}
	samples[0], samples[1], samples[3*perPoint] = 100, 500, 0
	c.add(samples, samples)
	c.add([]float64{500}, []float64{1})
	got := c.CPU(1000)
	if got.Line != "M112 10h1M118 10h1" || got.Limit != "M0 1H120" || got.Label != "CPU in the last hour: at most 500m, limit 1000m" {
		t.Errorf("%+v", got)
	}
	if got := (*Course)(nil).CPU(1); got != (Line{}) {
		t.Errorf("of nothing: %+v", got)
	}
	if got := newCourse().Memory(1); got != (Line{}) {
		t.Errorf("without samples: %+v", got)
	}
}
