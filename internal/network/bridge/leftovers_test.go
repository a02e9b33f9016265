package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/records"
)

const childEnv = "PODRUN_TEST_NETWORK_RUN"

// TestChild is the second process of TestSecondProcessAgrees.
func TestChild(t *testing.T) {
	run, ok := os.LookupEnv(childEnv)
	if !ok {
		t.Skip("run by TestSecondProcessAgrees")
	}
	addrs, err := newBridge(t, run).Setup(t.Context(), "child", "/proc/self/fd/3", nettest.NoPorts)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("address", addrs[0])
}

func TestSecondProcessAgrees(t *testing.T) {
	host, a, b := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	addrA := nettest.MustSetup(t, host, br, "parent", a)
	var out []byte
	nettest.In(t, host, func() (err error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), childEnv+"="+run)
		fd, err := unix.Dup(int(b))
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "netns")
		defer f.Close()
		cmd.ExtraFiles = []*os.File{f}
		out, err = cmd.CombinedOutput()
		return err
	})
	_, text, _ := strings.Cut(string(out), "address ")
	addrB, err := netip.ParseAddr(strings.Fields(text)[0])
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if addrB != addrA.Next() {
		t.Errorf("%s, then %s", addrA, addrB)
	}
	nettest.Talk(t, a, b, addrB.String())
	nettest.Teardown(t, host, br, "child")
	nettest.Teardown(t, host, br, "parent")
	nettest.Bare(t, host, run)
}

// TestRunDirectoryDeleted: a bridge whose record was deleted with the run directory is removed when
// the next one is created, and no other podrun's bridge is.
func TestRunDirectoryDeleted(t *testing.T) {
	host, a, b, c := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	of := func(root string) *Bridge {
		return New(Options{Dirs: layout.Dirs{Run: run, Root: root}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	}
	root, others := t.TempDir(), t.TempDir()
	nettest.MustSetup(t, host, of(root), "before", a)
	forget := func() {
		if err := errors.Join(os.RemoveAll(run), os.Mkdir(run, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	bridges := func() (names []string) {
		nettest.In(t, host, func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				if l.Type() == "bridge" {
					names = append(names, l.Attrs().Name)
				}
			}
			return err
		})
		return names
	}
	forget()
	nettest.MustSetup(t, host, of(root), "after", b)
	if got := bridges(); len(got) != 1 {
		t.Errorf("bridges %q, want one", got)
	}
	forget()
	nettest.MustSetup(t, host, of(others), "other", c)
	if got := bridges(); len(got) != 2 {
		t.Errorf("bridges %q, want one of each podrun", got)
	}
	nettest.Teardown(t, host, of(others), "other")
	if got := bridges(); len(got) != 1 {
		t.Errorf("bridges %q, want the first podrun's", got)
	}
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	nettest.Teardown(t, host, of(others), "other")
	if got := bridges(); len(got) != 1 {
		t.Errorf("bridges %q: another podrun's was removed", got)
	}
	nettest.Teardown(t, host, of(root), "after")
	nettest.Teardown(t, host, of(root), "before")
	if got := bridges(); len(got) != 0 {
		t.Errorf("bridges %q after the last pod, whose address no record had", got)
	}
	nettest.Bare(t, host, run)
}

// TestBridgeWithoutAlias: a bridge whose podrun was killed before it set the alias, and whose run
// directory was removed, is removed when podrun ends; the bridge of another podrun in the same
// state is not.
func TestBridgeWithoutAlias(t *testing.T) {
	host, run := nettest.NewNS(t), t.TempDir()
	of := func(root string) *Bridge {
		return New(Options{Dirs: layout.Dirs{Run: run, Root: root}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	}
	mine, others := of(t.TempDir()), of(t.TempDir())
	nettest.In(t, host, func() error {
		for name, b := range map[string]*Bridge{"podrun-mine": mine, "podrun-others": others} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.HardwareAddr = name, b.identity.hardwareAddr()
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
				return err
			}
		}
		if err := mine.Close(); err != nil {
			return err
		}
		if _, err := netlink.LinkByName("podrun-mine"); !netdev.IsNotFound(err) {
			t.Errorf("its own: %v", err)
		}
		_, err := netlink.LinkByName("podrun-others")
		return err
	})
}

// TestSideBySide: podruns of different run directories do not affect each other, even with the same
// sandbox ID.
func TestSideBySide(t *testing.T) {
	host, a, b := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	runA, runB := t.TempDir(), t.TempDir()
	brA, brB := newBridge(t, runA), newBridge(t, runB)
	nettest.MustSetup(t, host, brA, "same", a)
	addrB := nettest.MustSetup(t, host, brB, "same", b)
	recA, _ := brA.records.Load()
	recB, _ := brB.records.Load()
	if recA.Bridge == recB.Bridge || recA.Subnet.Overlaps(recB.Subnet) {
		t.Errorf("%+v and %+v", recA, recB)
	}
	nettest.Teardown(t, host, brA, "same")
	nettest.Talk(t, host, b, addrB.String())
	nettest.Teardown(t, host, brB, "same")
	nettest.Bare(t, host, runA)
	nettest.Bare(t, host, runB)
}

// TestLeftovers: everything that an interrupted process or an older boot left is reused or removed.
func TestLeftovers(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, host netns.NsHandle, b *Bridge){
		"bridge gone, as when a container restarts": func(t *testing.T, host netns.NsHandle, b *Bridge) {
			rec, _ := b.records.Load()
			nettest.In(t, host, func() error {
				handle, err := netlink.NewHandle()
				if err != nil {
					return err
				}
				defer handle.Close()
				return errors.Join(removeLink(handle, rec.Bridge), removeLink(handle, b.identity.portName("old")))
			})
		},
		"bridge down, as when its making was cut off": func(t *testing.T, host netns.NsHandle, b *Bridge) {
			rec, _ := b.records.Load()
			nettest.In(t, host, func() error {
				link, err := netlink.LinkByName(rec.Bridge)
				if err != nil {
					return err
				}
				return errors.Join(netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(gatewayOf(rec.Subnet), rec.Subnet.Bits())}),
					netlink.LinkSetDown(link), removeTables(rec.Bridge))
			})
		},
		"link but no address": func(t *testing.T, host netns.NsHandle, b *Bridge) {
			if err := b.addresses.release("old"); err != nil {
				t.Fatal(err)
			}
		},
		"torn record of the last address": func(t *testing.T, host netns.NsHandle, b *Bridge) {
			if err := os.WriteFile(filepath.Join(b.records.Path, records.LastName), []byte("10.6"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, a, again, other := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
			run := t.TempDir()
			b := newBridge(t, run)
			nettest.MustSetup(t, host, b, "old", a)
			harm(t, host, b)
			nettest.MustSetup(t, host, b, "old", again)
			addr := nettest.MustSetup(t, host, b, "new", other)
			nettest.Talk(t, again, other, addr.String())
			nettest.Teardown(t, host, b, "old")
			nettest.Teardown(t, host, b, "new")
			nettest.Bare(t, host, run)
		})
	}
}

// TestOtherBoot: addresses of an older boot are dropped, and links with its names are not touched.
func TestOtherBoot(t *testing.T) {
	host, a, b := nettest.NewNS(t), nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	old := newBridge(t, run)
	old.records.Boot = func() (string, error) { return "older", nil }
	nettest.MustSetup(t, host, old, "old", a)
	rec, _ := old.records.Load()
	now := newBridge(t, run)
	nettest.MustSetup(t, host, now, "new", b)
	held, err := now.addresses.owners()
	if err != nil || len(held) != 1 {
		t.Fatalf("held %v, %v", held, err)
	}
	recNow, _ := now.records.Load()
	if recNow.Bridge == rec.Bridge {
		t.Errorf("took over %s, which was there", rec.Bridge)
	}
	nettest.Teardown(t, host, now, "new")
	nettest.In(t, host, func() error {
		_, err := netlink.LinkByName(rec.Bridge)
		return err
	})
}

func TestErrors(t *testing.T) {
	host := nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	nettest.In(t, host, func() error {
		if _, err := br.Setup(context.Background(), "x", "/nowhere", nettest.NoPorts); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := br.Setup(ctx, "x", "/nowhere", nettest.NoPorts); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		return br.Teardown(context.Background(), "x")
	})
	nettest.Bare(t, host, run)
	if err := hint(fmt.Errorf("adding: %w", unix.EPERM)); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "hostNetwork: true") {
		t.Errorf("error %v", err)
	}
}

// TestNotPermitted: where podrun may not create a link, the error says what works.
func TestNotPermitted(t *testing.T) {
	host, pod := nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	err := nettest.Try(host, func() error {
		// Of this thread only, which ends.
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return err
		}
		data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &data[0]); err != nil {
			return err
		}
		_, err := br.Setup(context.Background(), "x", nettest.Path(pod), nettest.NoPorts)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "hostNetwork: true") {
		t.Fatalf("error %v", err)
	}
	nettest.Teardown(t, host, br, "x")
	nettest.Bare(t, host, run)
}

// TestKeep: a kept network outlives its last pod, and Close removes it when no pod is left.
func TestKeep(t *testing.T) {
	host, pod := nettest.NewNS(t), nettest.NewNS(t)
	run := t.TempDir()
	br := newBridge(t, run)
	br.keep = true
	nettest.MustSetup(t, host, br, "a", pod)
	nettest.In(t, host, br.Close) // somebody is in it
	name := func() string {
		rec, err := br.records.Load()
		if err != nil {
			t.Fatal(err)
		}
		return rec.Bridge
	}
	nettest.Teardown(t, host, br, "a")
	nettest.In(t, host, func() error { _, err := netlink.LinkByName(name()); return err })
	again := nettest.NewNS(t)
	nettest.MustSetup(t, host, br, "b", again)
	nettest.Teardown(t, host, br, "b")
	nettest.In(t, host, br.Close)
	nettest.In(t, host, br.Close)
	nettest.Bare(t, host, run)
}
