package unpacked

import (
	"math"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/accounts"
)

// FuzzSignalName checks that SignalName returns a name that it has returned unchanged.
func FuzzSignalName(f *testing.F) {
	for _, s := range []string{"", "9", "SIGTERM", "term", "sigrtmin+3", "-1", "99999999999999999999", "sig"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := SignalName(s)
		if again := SignalName(name); again != name {
			t.Errorf("%q is %q, and that is %q", s, name, again)
		}
	})
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
