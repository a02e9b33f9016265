package timeline

import (
	"testing"
	"time"
)

// TestSickNode: a container that is tried again and again, and a pod that waits for ever, hide no idle minute, and the
// retries before the last are left out.
func TestSickNode(t *testing.T) {
	all := []Span{span("sick", "a", Start, 0, 1), span("sick", "a", Run, 1, 2), span("lost", "b", Waiting, 2, -1)}
	for at := float64(2); at < 500; at += 12 {
		all = append(all, span("sick", "a", Backoff, at, at+10), span("sick", "a", Start, at+10, at+11),
			span("sick", "a", Run, at+11, at+12))
		if at == 302 {
			all = append(all, span("web", "c", Waiting, at+5, at+6), span("web", "c", Start, at+6, at+7))
		}
	}
	all = append(all, span("sick", "a", Backoff, 506, -1))
	now := zero.Add(510 * time.Second)
	last := LastRun(all, now)
	if s := last[0]; s.Pod != "web" || s.Kind != Waiting || len(last) <= 50 {
		t.Errorf("the last run begins with %+v, %d spans", s, len(last))
	}
	shown := WithoutRetries(last, now)
	if len(shown) != 3 || shown[2].Detail != "(the last of 17) " || shown[2].End != nil {
		t.Errorf("shown are %+v", shown)
	}
	if shown = WithoutRetries(all[:6], now); len(shown) != 6 {
		t.Errorf("one retry is shown: %+v", shown)
	}
}
