package pod_test

import (
	"testing"

	"podrun.io/podrun/internal/pod"
)

func TestExitReason(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code int
		oom  bool
		want string
	}{
		{0, false, "Completed"},
		{1, false, "Error"},
		{137, false, "Error"}, // somebody else killed it
		{137, true, "OOMKilled"},
		{1, true, "OOMKilled"}, // a shell whose child was killed
		{0, true, "OOMKilled"}, // one that does not mind
		{143, true, "OOMKilled"},
	} {
		if got := pod.ExitReason(tt.code, tt.oom); got != tt.want {
			t.Errorf("%d, %v: %s, want %s", tt.code, tt.oom, got, tt.want)
		}
	}
}
