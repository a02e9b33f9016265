package agent

import (
	"os"
	"testing"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
)

func TestLastSeen(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	if at, alive := LastSeen(dirs); alive || !at.IsZero() {
		t.Errorf("never ran: %s %v", at, alive)
	}
	one, err := beginSighting(dirs)
	if err != nil {
		t.Fatal(err)
	}
	two, err := beginSighting(dirs) // once beside serve
	if err != nil {
		t.Fatal(err)
	}
	one.end()
	if _, alive := LastSeen(dirs); !alive {
		t.Error("one of two ended: not alive")
	}
	two.end()
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(dirs.StatusFiles().Seen(), old, old); err != nil {
		t.Fatal(err)
	}
	if at, alive := LastSeen(dirs); alive || !at.Equal(old) {
		t.Errorf("ended: %s %v, want %s", at, alive, old)
	}
}
