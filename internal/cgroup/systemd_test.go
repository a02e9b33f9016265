package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
)

func TestSliceLimits(t *testing.T) {
	t.Parallel()
	cpu := func(shares uint64, quota int64) *specs.LinuxCPU {
		return &specs.LinuxCPU{Shares: &shares, Quota: &quota, Period: new(uint64(100_000))}
	}
	memory := func(n int64) *specs.LinuxMemory { return &specs.LinuxMemory{Limit: &n} }
	const none = uint64(math.MaxUint64)
	for _, c := range []struct {
		name    string
		unified bool
		of      specs.LinuxResources
		want    string
	}{
		{"nothing", true, specs.LinuxResources{}, ""},
		{"version 2", true, specs.LinuxResources{CPU: cpu(1024, 150_000), Memory: memory(1 << 20), Pids: &specs.LinuxPids{Limit: new(int64(7))}},
			"CPUWeight=100 CPUQuotaPerSecUSec=1500000 MemoryMax=1048576 TasksMax=7"},
		{"version 1", false, specs.LinuxResources{CPU: cpu(1024, 150_000), Memory: memory(1 << 20), Pids: &specs.LinuxPids{Limit: new(int64(7))}},
			"CPUShares=1024 CPUQuotaPerSecUSec=1500000 MemoryLimit=1048576 TasksMax=7"},
		{"part of a percent", true, specs.LinuxResources{CPU: cpu(2, 12_345)}, "CPUWeight=1 CPUQuotaPerSecUSec=130000"},
		{"no limits", true, specs.LinuxResources{CPU: cpu(2, -1), Memory: memory(math.MaxInt64), Pids: &specs.LinuxPids{Limit: new(int64(-1))}},
			fmt.Sprintf("CPUWeight=1 CPUQuotaPerSecUSec=%d MemoryMax=%d TasksMax=%d", none, none, none)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := spell(sliceLimits(&c.of, c.unified)); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// fakeSystemd has the units of a systemd and makes their cgroups in dir.
type fakeSystemd struct {
	dir string
	// control is where a systemd before version 252 writes what is set of a unit with a configuration of any kind, which
	// it does not start as a transient one; "" for a later version.
	control string
	// ours are the slices that were started with these properties; those that systemd has started by itself are not.
	ours  map[string]string
	calls []string
	fails error
}

func (f *fakeSystemd) start(
	_ context.Context, name, _ string, properties []systemd.Property, done chan<- string,
) (int, error) {
	f.calls = append(f.calls, "start "+name)
	if f.fails != nil {
		return 0, f.fails
	}
	if f.ours[name] != "" || f.control != "" {
		return 0, dbus.Error{Name: "org.freedesktop.systemd1.UnitExists"}
	}
	f.ours[name] = spell(properties)
	done <- "done"
	at, full := f.dir, ""
	for _, part := range strings.Split(strings.TrimSuffix(name, sliceSuffix), "-") {
		full = strings.TrimPrefix(full+"-"+part, "-")
		at = filepath.Join(at, full+sliceSuffix)
	}
	return 0, os.MkdirAll(at, 0o755)
}

func (f *fakeSystemd) set(_ context.Context, name string, _ bool, properties ...systemd.Property) error {
	f.calls = append(f.calls, "set "+name+" "+spell(properties))
	for _, p := range properties {
		if f.control == "" {
			break
		}
		file := filepath.Join(f.control, name+".d", "50-"+p.Name+".conf")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("[Slice]\n"), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeSystemd) stop(_ context.Context, name, _ string, done chan<- string) (int, error) {
	f.calls = append(f.calls, "stop "+name)
	if f.fails != nil {
		return 0, f.fails
	}
	done <- "done"
	return 0, nil
}

func (f *fakeSystemd) get(_ context.Context, name, kind, property string) (*systemd.Property, error) {
	f.calls = append(f.calls, "get "+name+" "+kind+"."+property)
	return &systemd.Property{}, f.fails
}

func spell(properties []systemd.Property) string {
	var out []string
	for _, p := range properties {
		out = append(out, fmt.Sprintf("%s=%v", p.Name, p.Value.Value()))
	}
	return strings.Join(out, " ")
}

// TestSlices: no slice is left to systemd's defaults, by which it would end it, with its pods, when the machine shuts down.
func TestSlices(t *testing.T) {
	t.Parallel()
	f := &fakeSystemd{dir: t.TempDir(), ours: map[string]string{}}
	tree := &Tree{unified: f.dir, units: t.TempDir(), systemd: func(ctx context.Context, do func(context.Context, units) error) error {
		return do(ctx, units{f.start, f.set, f.stop, f.get})
	}}
	set := func(at string, want ...string) {
		t.Helper()
		f.calls = nil
		if err := tree.setSlice(at, &specs.LinuxResources{}); err != nil || !slices.Equal(f.calls, want) {
			t.Errorf("%s: %q, %v\nwant %q", at, f.calls, err, want)
		}
	}
	set("/podrun/no/slice")
	if all, err := os.ReadDir(tree.units); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	// Whoever stops in the middle of writing leaves a part.
	torn := filepath.Join(tree.units, "podrun.slice.d", "10-shutdown.conf")
	if err := errors.Join(os.Mkdir(filepath.Dir(torn), 0o755), os.WriteFile(torn, []byte("[Unit]\nDefault"), 0o644)); err != nil {
		t.Fatal(err)
	}
	const class = "/podrun.slice/podrun-besteffort.slice"
	set(class+"/podrun-besteffort-poda.slice", "start podrun-besteffort-poda.slice")
	set(class+"/podrun-besteffort-poda.slice", "start podrun-besteffort-poda.slice") // which exists
	for _, of := range []string{"podrun.slice.d", "podrun-.slice.d"} {
		text, err := os.ReadFile(filepath.Join(tree.units, of, "10-shutdown.conf"))
		if err != nil || string(text) != "[Unit]\nDefaultDependencies=no\n" {
			t.Errorf("%s: %q, %v", of, text, err)
		}
	}
}

// TestSliceExists: what exists gets its limits, and what fails is said.
func TestSliceExists(t *testing.T) {
	t.Parallel()
	f := &fakeSystemd{dir: t.TempDir(), ours: map[string]string{"podrun-poda.slice": "x"}}
	tree := &Tree{unified: f.dir, units: t.TempDir(), systemd: func(ctx context.Context, do func(context.Context, units) error) error {
		return do(ctx, units{f.start, f.set, f.stop, f.get})
	}}
	limited := &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: new(int64(7))}}
	err := tree.setSlice("/podrun.slice/podrun-poda.slice", limited)
	if want := []string{"start podrun-poda.slice", "set podrun-poda.slice TasksMax=7"}; err != nil || !slices.Equal(f.calls, want) {
		t.Errorf("%q, %v", f.calls, err)
	}
	f.fails = errors.New("no")
	if err := tree.setSlice("/podrun.slice/podrun-podb.slice", limited); err == nil || err.Error() != "setting slice podrun-podb.slice: no" {
		t.Errorf("error %v", err)
	}
}

// TestSliceLeavesNothing: of a slice that is stopped, or was before, systemd's files of its limits go, and nothing else.
func TestSliceLeavesNothing(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	f := &fakeSystemd{dir: t.TempDir(), control: filepath.Join(run, "system.control"), ours: map[string]string{}}
	tree := &Tree{unified: f.dir, units: filepath.Join(run, "system"), systemd: func(ctx context.Context, do func(context.Context, units) error) error {
		return do(ctx, units{f.start, f.set, f.stop, f.get})
	}}
	const slice = `podrun-poda\x5fb.slice`
	stop := func() error { return tree.StopSlice(t.Context(), "/podrun.slice/"+slice) }
	if err := stop(); err != nil || len(f.calls) > 0 {
		t.Errorf("without systemd: %q, %v", f.calls, err)
	}
	limit := func(name string) {
		t.Helper()
		limited := &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: new(int64(7))}, Memory: &specs.LinuxMemory{Limit: new(int64(1 << 20))}}
		if err := tree.setSlice("/podrun.slice/"+name, limited); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (names string) {
		t.Helper()
		all, err := filepath.Glob(f.control + "/*/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			name, _ := filepath.Rel(f.control, path)
			names += name + " "
		}
		return strings.TrimSpace(names)
	}
	limit("podrun-podc.slice")
	others := left()
	for what, fails := range map[string]error{
		"it runs": nil, "it was stopped": dbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit"},
		"no unit has such a name": dbus.Error{Name: "org.freedesktop.DBus.Error.InvalidArgs"},
	} {
		f.fails = nil
		limit(slice)
		if left() == others {
			t.Fatal("systemd has written nothing")
		}
		f.calls, f.fails = nil, fails
		if err := stop(); err != nil || !slices.Equal(f.calls, []string{"stop " + slice}) || left() != others {
			t.Errorf("%s: %q, %v, left: %s", what, f.calls, err, left())
		}
		if _, err := os.Lstat(filepath.Join(f.control, slice+".d")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: its directory: %v", what, err)
		}
	}
	f.fails = nil
	limit(slice)
	limited := left()
	f.fails = errors.New("no")
	if err := stop(); !errors.Is(err, f.fails) || left() != limited {
		t.Errorf("it still runs: %v, left: %s", err, left())
	}
	f.fails = nil
	dir := filepath.Join(f.control, slice+".d")
	if err := os.WriteFile(filepath.Join(dir, "60-own.conf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err, want := stop(), slice+".d/60-own.conf "; err != nil || !strings.Contains(left()+" ", want) || strings.Contains(left(), slice+".d/50-") {
		t.Errorf("an administrator's file: %v, left: %s", err, left())
	}
	elsewhere := filepath.Join(t.TempDir(), "50-theirs.conf")
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(elsewhere, nil, 0o600), os.Symlink(filepath.Dir(elsewhere), dir)); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(elsewhere); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

// TestScopesHaveOOMPolicy: an old systemd does not know the property, and one that does not answer has not said so.
func TestScopesHaveOOMPolicy(t *testing.T) {
	t.Parallel()
	away := errors.New("systemd restarts")
	for _, c := range []struct {
		answer error
		has    bool
		err    error
	}{{nil, true, nil}, {dbus.Error{Name: "org.freedesktop.DBus.Error.UnknownProperty"}, false, nil}, {away, false, away}} {
		f := &fakeSystemd{fails: c.answer}
		has, err := scopesHaveOOMPolicy(func(ctx context.Context, do func(context.Context, units) error) error {
			return do(ctx, units{f.start, f.set, f.stop, f.get})
		})
		if has != c.has || !errors.Is(err, c.err) || !slices.Equal(f.calls, []string{"get init.scope Scope.OOMPolicy"}) {
			t.Errorf("%v: %t, %v, asked %q", c.answer, has, err, f.calls)
		}
	}
}

func TestFirst(t *testing.T) {
	t.Parallel()
	read := func(path string) (Usage, error) {
		if path == "b" {
			return Usage{Memory: 1}, nil
		}
		return (&Tree{unified: t.TempDir()}).Usage(path)
	}
	if path, u, err := First(read, []string{"a", "b", "c"}); path != "b" || u.Memory != 1 || err != nil {
		t.Errorf("%s %v %v", path, u, err)
	}
	if _, _, err := First(read, []string{"a", "c"}); err == nil {
		t.Error("none is there")
	}
}

// TestConnectsToSystemd: systemd is asked by its own socket if that is there, because on the bus anybody may say that its
// jobs have failed.
func TestConnectsToSystemd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	var served [2]atomic.Int32
	serve := func(path string, count *atomic.Int32) net.Listener {
		l, err := net.Listen("unix", path)
		test.Must(t, err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				count.Add(1)
				in := bufio.NewScanner(c)
				for _, answer := range []string{"REJECTED EXTERNAL\r\n", "OK 1\r\n", "AGREE_UNIX_FD\r\n", ""} {
					in.Scan()
					_, _ = io.WriteString(c, answer)
				}
				c.Close()
			}
		}()
		return l
	}
	bus := serve(filepath.Join(dir, "bus"), &served[0])
	defer bus.Close()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(dir, "bus"))
	test.Must(t, sys.OnOwnThread(func() error {
		// The library looks for the socket in /run.
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("run", "/run", "tmpfs", 0, ""); err != nil {
			return err
		}
		ask := func() {
			if c, err := connect(t.Context()); err == nil {
				c.Close()
			}
		}
		if ask(); served[0].Load() == 0 {
			t.Error("without systemd's socket the bus is not asked")
		}
		served[0].Store(0)
		if err := os.Mkdir("/run/systemd", 0o700); err != nil {
			return err
		}
		defer serve("/run/systemd/private", &served[1]).Close()
		if ask(); served[0].Load() != 0 || served[1].Load() == 0 {
			t.Errorf("asked the bus %d times, systemd %d times", served[0].Load(), served[1].Load())
		}
		return nil
	}))
}
