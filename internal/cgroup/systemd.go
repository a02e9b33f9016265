package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// A cgroup whose name ends so is a slice: a unit of systemd's, which is told of it first. Else systemd
// would undo what is set whenever it reads its configuration again.
const sliceSuffix = ".slice"

// systemdTime is how long systemd is given to do a thing.
const systemdTime = 30 * time.Second

// systemdDir is there where systemd is the machine's first process; see sd_booted(3).
const systemdDir = "/run/systemd/system"

// HasSystemd reports that systemd runs here, so that cgroups can be its slices.
func HasSystemd() bool {
	i, err := os.Lstat(systemdDir)
	return err == nil && i.IsDir()
}

// withSystemd connects for one thing, so that neither a restart of systemd's nor of the bus's matters.
func withSystemd(ctx context.Context, do func(ctx context.Context, c *systemd.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTime)
	defer cancel()
	c, err := systemd.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("connecting to systemd: %w", err)
	}
	defer c.Close()
	return do(ctx, c)
}

// setSlice makes the slice at path, if it is not there, with these resources; what they do not say is left
// alone. What is no slice is none of systemd's.
func setSlice(at string, unified bool, resources *specs.LinuxResources) error {
	if !strings.HasSuffix(at, sliceSuffix) {
		return nil
	}
	name, limits := path.Base(at), sliceLimits(resources, unified)
	err := withSystemd(context.Background(), func(ctx context.Context, c *systemd.Conn) error {
		done := make(chan string, 1)
		start := append(limits, property("Description", "podrun "+strings.TrimSuffix(name, sliceSuffix)),
			property("DefaultDependencies", false), property("CPUAccounting", true), property("MemoryAccounting", true), property("TasksAccounting", true))
		_, err := c.StartTransientUnitContext(ctx, name, "replace", start, done)
		if exists := (dbus.Error{}); errors.As(err, &exists) && exists.Name == "org.freedesktop.systemd1.UnitExists" {
			if len(limits) == 0 {
				return nil
			}
			return c.SetUnitPropertiesContext(ctx, name, true, limits...)
		}
		return finished(ctx, err, done)
	})
	if err != nil {
		return fmt.Errorf("setting slice %s: %w", name, err)
	}
	return nil
}

// weighSlice tells systemd what the slice at path weighs, in terms of the cgroup's file of that name.
func weighSlice(at, file string, weight uint64) error {
	if !strings.HasSuffix(at, sliceSuffix) {
		return nil
	}
	name := path.Base(at)
	err := withSystemd(context.Background(), func(ctx context.Context, c *systemd.Conn) error {
		return c.SetUnitPropertiesContext(ctx, name, true, property(weightProperty(file == "cpu.weight"), weight))
	})
	if err != nil {
		return fmt.Errorf("weighing slice %s: %w", name, err)
	}
	return nil
}

// StopSlice has systemd forget the slice at path, and end what is in it. One that is not there is success, and so
// is a cgroup that is no slice.
func StopSlice(ctx context.Context, at string) error {
	if !strings.HasSuffix(at, sliceSuffix) || !HasSystemd() {
		return nil
	}
	name := path.Base(at)
	err := withSystemd(ctx, func(ctx context.Context, c *systemd.Conn) error {
		done := make(chan string, 1)
		_, err := c.StopUnitContext(ctx, name, "replace", done)
		if gone := (dbus.Error{}); errors.As(err, &gone) && gone.Name == "org.freedesktop.systemd1.NoSuchUnit" {
			return nil
		}
		return finished(ctx, err, done)
	})
	if err != nil {
		return fmt.Errorf("stopping slice %s: %w", name, err)
	}
	return nil
}

// finished waits for the job that was begun with err.
func finished(ctx context.Context, err error, done <-chan string) error {
	if err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("systemd's job: %s", result)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func property(name string, value any) systemd.Property {
	return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
}

func weightProperty(unified bool) string {
	if unified {
		return "CPUWeight"
	}
	return "CPUShares"
}

// sliceLimits are those of the resources, in terms of version 1, that systemd knows; see systemd.resource-control(5).
// Without a limit it is asked for none.
func sliceLimits(resources *specs.LinuxResources, unified bool) []systemd.Property {
	var out []systemd.Property
	if cpu := resources.CPU; cpu != nil {
		if cpu.Shares != nil {
			weight := *cpu.Shares
			if unified {
				weight = *cgroup2.ToResources(&specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: cpu.Shares}}).CPU.Weight
			}
			out = append(out, property(weightProperty(unified), weight))
		}
		if cpu.Quota != nil && cpu.Period != nil {
			out = append(out, property("CPUQuotaPerSecUSec", quotaOfSecond(*cpu.Quota, *cpu.Period)))
		}
	}
	if memory := resources.Memory; memory != nil && memory.Limit != nil {
		name := "MemoryLimit"
		if unified {
			name = "MemoryMax"
		}
		out = append(out, property(name, orNone(*memory.Limit)))
	}
	if resources.Pids != nil && resources.Pids.Limit != nil {
		out = append(out, property("TasksMax", orNone(*resources.Pids.Limit)))
	}
	return out
}

// quotaOfSecond is how much processor time, in microseconds, there is a second. Systemd knows whole percents
// only; the cgroup has the exact value written after.
func quotaOfSecond(quota int64, period uint64) uint64 {
	const second, percent = 1_000_000, 10_000
	if quota <= 0 || period == 0 {
		return math.MaxUint64
	}
	of := uint64(quota) * second / period
	return (of + percent - 1) / percent * percent
}

// orNone is a limit in systemd's words, where one that cannot be reached is none.
func orNone(limit int64) uint64 {
	if limit < 0 || limit == math.MaxInt64 {
		return math.MaxUint64
	}
	return uint64(limit)
}
