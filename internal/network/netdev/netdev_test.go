package netdev

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestDump: an interrupted dump of a kernel list is repeated, but not for ever; other errors are
// returned at once.
func TestDump(t *testing.T) {
	other := errors.New("another")
	for _, c := range []struct {
		interrupted int
		then, want  error
		asked       int
	}{
		{0, nil, nil, 1},
		{2, nil, nil, 3},
		{2, other, other, 3},
		{mostDumps + 5, other, nil, mostDumps},
	} {
		asked := 0
		got, err := Dump(func() ([]int, error) {
			if asked++; asked <= c.interrupted {
				return []int{asked}, fmt.Errorf("listing: %w", netlink.ErrDumpInterrupted)
			}
			return []int{asked}, c.then
		})
		if !errors.Is(err, c.want) || asked != c.asked || got[0] != c.asked {
			t.Errorf("interrupted %d times: %v, %v, asked %d times", c.interrupted, got, err, asked)
		}
	}
}
