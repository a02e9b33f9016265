package cgroup

import (
	"context"
	"fmt"
	"math"

	systemd "github.com/coreos/go-systemd/v22/dbus"
)

// StartScope moves the process, with what it starts from then on, out of the systemd unit of the process that started
// it, into a scope of its own with that name: it outlives the unit, and the unit's limits do not apply to it. Without
// systemd it does nothing.
func StartScope(ctx context.Context, name string, pid int) error {
	if !HasSystemd() {
		return nil
	}
	err := withSystemd(ctx, func(ctx context.Context, c units) error {
		done := make(chan string, 1)
		_, err := c.start(ctx, name, "fail", []systemd.Property{
			property("Description", "podrun's containerd and its shims"),
			property("PIDs", []uint32{uint32(pid)}), // #nosec G115 -- a process ID is positive
			// podrun ends the pods when the machine shuts down. The end of a shim for want of memory ends no other.
			property("DefaultDependencies", false),
			property("Delegate", true),
			property("TasksMax", uint64(math.MaxUint64)),
			property("CollectMode", "inactive-or-failed"),
		}, done)
		return finished(ctx, err, done)
	})
	if err != nil {
		return fmt.Errorf("starting scope %s: %w", name, err)
	}
	return nil
}
