package sdnotify

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestFromEnvironment(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		env  map[string]string
		want Options
	}{
		{nil, Options{}},
		{map[string]string{"NOTIFY_SOCKET": "@x"}, Options{Socket: "@x"}},
		{map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": me}, Options{Socket: "/s", Watchdog: 30 * time.Second}},
		{map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, Options{Socket: "/s"}},
		{map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "soon"}, Options{Socket: "/s"}},
	} {
		if got := FromEnvironment(func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("%v: %+v", tt.env, got)
		}
	}
}
