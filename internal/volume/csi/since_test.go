package csi_test

import (
	"path/filepath"
	"testing"
	"time"

	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/volume/csi"
)

// TestGoneSince: people see since when a driver is gone, until it is back.
func TestGoneSince(t *testing.T) {
	m := newMachine(t)
	m.start()
	h := &history{machine: m, dir: filepath.Dir(m.kubelet)}
	t.Cleanup(func() { end(h.server) })
	is := func(right func(csi.Driver) bool) func() bool {
		return func() bool {
			all, err := csi.Read(m.dirs)
			return err == nil && len(all) == 1 && right(all[0])
		}
	}
	there := is(func(d csi.Driver) bool { return d.Connected && d.Lost.IsZero() })
	gone := is(func(d csi.Driver) bool { return !d.Connected && time.Since(d.Lost) < time.Minute })
	test.Eventually(t, "a driver that is killed to be gone", func() bool {
		h.startDriver()
		test.Eventually(t, "the driver to be there", there)
		time.Sleep(50 * time.Millisecond)
		end(h.server) // it leaves its sockets
		for begun := time.Now(); time.Since(begun) < 2*time.Second; time.Sleep(time.Millisecond) {
			if gone() {
				return true
			}
		}
		return false // perhaps it was killed before it knew that it had registered, and counts as if it never had
	})
	h.startDriver()
	test.Eventually(t, "the driver to be back", there)
}
