package owner

import (
	"os"
	"testing"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
)

func TestLastSeen(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	if at, alive := (Reader{dirs}).LastSeen(); alive || !at.IsZero() {
		t.Errorf("never ran: %s %v", at, alive)
	}
	one, err := StartHeartbeat(dirs)
	if err != nil {
		t.Fatal(err)
	}
	two, err := StartHeartbeat(dirs) // once beside serve
	if err != nil {
		t.Fatal(err)
	}
	one.Stop()
	if _, alive := (Reader{dirs}).LastSeen(); !alive {
		t.Error("one of two ended: not alive")
	}
	two.Stop()
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(dirs.StatusFiles().Seen(), old, old); err != nil {
		t.Fatal(err)
	}
	if at, alive := (Reader{dirs}).LastSeen(); alive || !at.Equal(old) {
		t.Errorf("ended: %s %v, want %s", at, alive, old)
	}
}
