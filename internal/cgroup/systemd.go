package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// sliceSuffix ends the name of a cgroup that is a systemd slice. Such a cgroup is set through
// systemd first: systemd would otherwise reset its values whenever it reloads its configuration.
const sliceSuffix = ".slice"

// systemdTime is the timeout of one operation of systemd.
const systemdTime = 30 * time.Second

// systemdDir exists if systemd is the machine's init process; see sd_booted(3). It is where units of this boot are
// configured.
const systemdDir = "/run/systemd/system"

// HasSystemd reports whether systemd is the machine's init process, so that cgroups can be its
// slices.
func HasSystemd() bool { return isDir(systemdDir) }

// isDir reports whether path is a directory. A symbolic link is none.
func isDir(path string) bool {
	i, err := os.Lstat(path)
	return err == nil && i.IsDir()
}

// units are the calls of systemd that this package makes. They are no interface, which would keep all methods of a
// connection in the binary.
type units struct {
	start func(ctx context.Context, name, mode string, properties []systemd.Property, done chan<- string) (int, error)
	set   func(ctx context.Context, name string, runtime bool, properties ...systemd.Property) error
	stop  func(ctx context.Context, name, mode string, done chan<- string) (int, error)
	get   func(ctx context.Context, name, kind, property string) (*systemd.Property, error)
}

// withSystemd connects to systemd for one operation, so that restarts of systemd or of the bus
// between operations do no harm.
func withSystemd(ctx context.Context, do func(ctx context.Context, c units) error) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTime)
	defer cancel()
	c, err := connect(ctx)
	if err != nil {
		return fmt.Errorf("connecting to systemd: %w", err)
	}
	defer c.Close()
	return do(ctx, units{
		c.StartTransientUnitContext, c.SetUnitPropertiesContext, c.StopUnitContext, c.GetUnitTypePropertyContext,
	})
}

// ScopesHaveOOMPolicy reports whether systemd accepts the property OOMPolicy for scopes: it does from version 253 on,
// and some distributions' version 252 does. Another systemd refuses to start a scope that has it.
func ScopesHaveOOMPolicy() (bool, error) { return scopesHaveOOMPolicy(withSystemd) }

func scopesHaveOOMPolicy(
	systemd func(ctx context.Context, do func(ctx context.Context, c units) error) error,
) (bool, error) {
	err := systemd(context.Background(), func(ctx context.Context, c units) error {
		_, err := c.get(ctx, "init.scope", "Scope", "OOMPolicy") // systemd's own process is always in this one
		return err
	})
	if no := (dbus.Error{}); errors.As(err, &no) && no.Name == "org.freedesktop.DBus.Error.UnknownProperty" {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking systemd for its properties of scopes: %w", err)
	}
	return true, nil
}

// connect connects to systemd itself, by its socket for root, as systemctl does. On the system's bus any user of the
// machine may send the signal that a job has failed, and the library would believe it. In a container there may be the
// bus alone.
func connect(ctx context.Context) (*systemd.Conn, error) {
	c, err := systemd.NewSystemdConnectionContext(ctx)
	if err == nil {
		return c, nil
	}
	c, onBus := systemd.NewWithContext(ctx)
	if onBus != nil {
		return nil, errors.Join(err, onBus)
	}
	return c, nil
}

// setSlice creates the slice at path, if it does not exist, and applies resources. It does not
// change what they do not set. It does nothing for a cgroup that is not a slice.
func (t *Tree) setSlice(at string, resources *specs.LinuxResources) error {
	if !strings.HasSuffix(at, sliceSuffix) {
		return nil
	}
	name, limits := path.Base(at), sliceLimits(resources, t.unified != "")
	err := t.keepAtShutdown(at)
	if err == nil {
		err = t.systemd(context.Background(), func(ctx context.Context, c units) error {
			return startSlice(ctx, c, name, limits)
		})
	}
	if err != nil {
		return fmt.Errorf("setting slice %s: %w", name, err)
	}
	return nil
}

// keepAtShutdown makes systemd keep podrun's slices when the machine shuts down, until podrun has ended the pods in
// order: systemd would stop a slice, and with it all that is below, at once. The property of a transient unit is not
// enough, because the unit is loaded, with its default dependencies, before it is set; and systemd starts a parent by
// itself. The names of these directories match all slices. A slice that exists loses its dependencies when systemd
// reloads its configuration.
func (t *Tree) keepAtShutdown(at string) error {
	top, _, _ := strings.Cut(strings.TrimPrefix(at, "/"), "/")
	stem, text := strings.TrimSuffix(top, sliceSuffix), []byte("[Unit]\nDefaultDependencies=no\n")
	for _, of := range []string{stem, stem + "-"} {
		dir := path.Join(t.units, of+sliceSuffix+".d")
		file := path.Join(dir, "10-shutdown.conf")
		if is, err := os.ReadFile(file); err == nil && bytes.Equal(is, text) {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// startSlice starts a slice with limits; one that exists gets them.
func startSlice(ctx context.Context, c units, name string, limits []systemd.Property) error {
	done := make(chan string, 1)
	start := append(limits, property("Description", "podrun "+strings.TrimSuffix(name, sliceSuffix)),
		property("DefaultDependencies", false),
		property("CPUAccounting", true),
		property("MemoryAccounting", true),
		property("TasksAccounting", true))
	_, err := c.start(ctx, name, "replace", start, done)
	if exists := (dbus.Error{}); errors.As(err, &exists) && exists.Name == "org.freedesktop.systemd1.UnitExists" {
		if len(limits) == 0 {
			return nil
		}
		return c.set(ctx, name, true, limits...)
	}
	return finished(ctx, err, done)
}

// weighSlice sets the CPU weight of the slice at path, in the unit of the cgroup file with that
// name. It does nothing for a cgroup that is not a slice.
func (t *Tree) weighSlice(at, file string, weight uint64) error {
	if !strings.HasSuffix(at, sliceSuffix) {
		return nil
	}
	name := path.Base(at)
	err := t.systemd(context.Background(), func(ctx context.Context, c units) error {
		return c.set(ctx, name, true, property(weightProperty(file == "cpu.weight"), weight))
	})
	if err != nil {
		return fmt.Errorf("weighing slice %s: %w", name, err)
	}
	return nil
}

// StopSlice stops the slice at path: systemd ends the processes in it and forgets it, with the limits that it had. It
// is no error if it does not exist, or if no unit can have its name. It does nothing for a cgroup that is not a slice,
// or on a machine without systemd.
func (t *Tree) StopSlice(ctx context.Context, at string) error {
	if !strings.HasSuffix(at, sliceSuffix) || !isDir(t.units) {
		return nil
	}
	name := path.Base(at)
	err := t.systemd(ctx, func(ctx context.Context, c units) error {
		done := make(chan string, 1)
		_, err := c.stop(ctx, name, "replace", done)
		if no := (dbus.Error{}); errors.As(err, &no) &&
			(no.Name == "org.freedesktop.systemd1.NoSuchUnit" || no.Name == "org.freedesktop.DBus.Error.InvalidArgs") {
			return nil
		}
		return finished(ctx, err, done)
	})
	if err == nil {
		err = t.removeLimits(name)
	}
	if err != nil {
		return fmt.Errorf("stopping slice %s: %w", name, err)
	}
	return nil
}

// removeLimits removes what systemd has written for the limits of a slice that is stopped. Before version 252 it keeps
// that until the machine restarts: a unit with a configuration of any kind, such as keepAtShutdown's, is none of the
// transient ones, with which it would go.
func (t *Tree) removeLimits(name string) error {
	dir := path.Join(t.units+".control", name+".d")
	if !isDir(dir) {
		return nil
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if of, _ := path.Match("50-*.conf", f.Name()); !of || f.IsDir() {
			continue
		}
		if err := os.Remove(path.Join(dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err = syscall.Rmdir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) { // an administrator's file is in it
		return nil
	}
	return err
}

// finished waits for the result of a systemd job. err is the error of starting the job.
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

// sliceLimits converts resources, in terms of version 1, to the systemd properties that exist for
// them; see systemd.resource-control(5). A limit that means none is converted to none.
func sliceLimits(resources *specs.LinuxResources, unified bool) []systemd.Property {
	var out []systemd.Property
	if cpu := resources.CPU; cpu != nil {
		if cpu.Shares != nil {
			weight := *cpu.Shares
			if unified {
				weight = weightOf(weight)
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

// quotaOfSecond returns a CPU quota as microseconds of CPU time per second, rounded up to whole
// percents, which is what systemd supports. The exact value is written to the cgroup afterwards.
func quotaOfSecond(quota int64, period uint64) uint64 {
	const second, percent = 1_000_000, 10_000
	if quota <= 0 || period == 0 {
		return math.MaxUint64
	}
	of := uint64(quota) * second / period
	return (of + percent - 1) / percent * percent
}

// orNone converts a limit to systemd's form. A negative or unreachable limit becomes none.
func orNone(limit int64) uint64 {
	if isNone(limit) {
		return math.MaxUint64
	}
	return uint64(limit)
}
