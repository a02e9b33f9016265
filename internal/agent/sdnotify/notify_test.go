package sdnotify

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestWatchdog(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		micros, pid string
		want        time.Duration
	}{
		{"", "", 0},
		{"30000000", me, 30 * time.Second},
		{"30000000", "", 30 * time.Second},
		{"30000000", "1", 0},
		{"soon", "", 0},
	} {
		t.Setenv("WATCHDOG_USEC", tt.micros)
		t.Setenv("WATCHDOG_PID", tt.pid)
		if got := Watchdog(); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
