package unpacked

import (
	"math"
	"testing"

	signals "github.com/moby/sys/signal"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/accounts"
)

// FuzzSignalName checks that SignalName returns a signal that can be sent, by a name that it has returned unchanged, or
// nothing.
func FuzzSignalName(f *testing.F) {
	for _, s := range []string{"", "9", "SIGTERM", "term", "sigrtmin+3", "-1", "99999999999999999999", "sig", "SIGNONSENSE", "37", "64"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := SignalName(s)
		if again := SignalName(name); again != name {
			t.Errorf("%q is %q, and that is %q", s, name, again)
		}
		if number, err := signals.ParseSignal(name); name != "" && (err != nil || !signals.ValidSignalForPlatform(number)) {
			t.Errorf("%q is %q, which is signal %d: %v", s, name, number, err)
		}
	})
}

// TestSignalName checks the names of signals that images give.
func TestSignalName(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"": "", "SIGINT": "SIGINT", "int": "SIGINT", "2": "SIGINT", "SIGRTMIN+3": "SIGRTMIN+3", "37": "SIGRTMIN+3", "64": "SIGRTMAX",
		"0": "", "-1": "", "65": "", "NONSENSE": "", "SIGRTMIN+99": "", "SIGTERM\n": "",
	} {
		if got := SignalName(s); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
}

// TestUserText checks that the label of a user in very many groups, which containerd would refuse,
// is left out.
func TestUserText(t *testing.T) {
	t.Parallel()
	user := accounts.User{User: specs.User{UID: 7, GID: 8}, GroupEntries: 9}
	for n := range uint32(daemon.LabelLimit) {
		if text := userText("sha256:0", user); len(text)+len(labelUser) > daemon.LabelLimit || n < 100 && text == "" {
			t.Fatalf("%d groups: a label of %d bytes", n, len(text))
		}
		user.AdditionalGids = append(user.AdditionalGids, math.MaxInt32)
	}
	if text := userText("sha256:0", user); text != "" {
		t.Errorf("a label of %d bytes", len(text))
	}
}
