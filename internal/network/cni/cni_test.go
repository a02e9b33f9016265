package cni_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/network/nettest"
)

// where Debian has the plugins.
const pluginDir = "/usr/lib/cni"

// plugged is a machine with a network of CNI's.
type plugged struct {
	*network.Network
	host netns.NsHandle
	conf string // directory
	dirs layout.Dirs
	ipam string // directory of host-local's addresses
}

// newPlugged makes a network of the bridge plugin and of what else is given.
func newPlugged(t *testing.T, more ...string) *plugged {
	t.Helper()
	for _, name := range []string{"bridge", "host-local"} {
		if _, err := os.Stat(filepath.Join(pluginDir, name)); err != nil {
			t.Skipf("needs CNI's plugins (containernetworking-plugins): %v", err)
		}
	}
	p := &plugged{host: nettest.NewNS(t), conf: t.TempDir(), ipam: t.TempDir(), dirs: layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}}
	p.write(t, "10-net.conflist", append([]string{fmt.Sprintf(`{"type":"bridge","bridge":"cnibr0","isGateway":true,"hairpinMode":true,
		"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.98.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`, p.ipam)}, more...)...)
	p.again(t, pluginDir)
	return p
}

// again is another podrun on the same directories.
func (p *plugged) again(t *testing.T, binDirs ...string) {
	p.Network = network.New(network.Options{Dirs: p.dirs, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), ConfDir: p.conf, BinDirs: binDirs})
}

func (p *plugged) write(t *testing.T, name string, plugins ...string) {
	t.Helper()
	text := `{"cniVersion":"1.0.0","name":"mine","plugins":[` + strings.Join(plugins, ",") + `]}`
	if err := os.WriteFile(filepath.Join(p.conf, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *plugged) setup(id string, ns netns.NsHandle, wanted *v1.Pod) (addrs []netip.Addr, err error) {
	err = nettest.Try(p.host, func() error {
		addrs, err = p.Setup(context.Background(), id, nettest.Path(ns), wanted)
		return err
	})
	return addrs, err
}

// empty checks that nothing is left of CNI's, and of podrun's own.
func (p *plugged) empty(t *testing.T) {
	t.Helper()
	leases, err := filepath.Glob(p.ipam + "/mine/10.*")
	if err != nil || len(leases) > 0 {
		t.Errorf("addresses are left: %v, %v", leases, err)
	}
	if ids, err := p.Holders(); err != nil || len(ids) > 0 {
		t.Errorf("still held: %v, %v", ids, err)
	}
	nettest.Bare(t, p.host, p.dirs.Run)
}

func (p *plugged) release(t *testing.T, id string) {
	t.Helper()
	nettest.In(t, p.host, func() error { return p.Teardown(context.Background(), id) })
}

func TestPlugins(t *testing.T) {
	p := newPlugged(t)
	p.write(t, "87-podman-bridge.conflist", `{"type":"nosuch"}`) // podman's, not for pods
	if err := os.Rename(filepath.Join(p.conf, "10-net.conflist"), filepath.Join(p.conf, "99-net.conflist")); err != nil {
		t.Fatal(err)
	}
	a, b := nettest.NewNS(t), nettest.NewNS(t)
	addrs, err := p.setup("a", a, nettest.NoPorts)
	if err != nil || len(addrs) != 1 || !netip.MustParsePrefix("10.98.0.0/24").Contains(addrs[0]) {
		t.Fatalf("%v, %v", addrs, err)
	}
	other, err := p.setup("b", b, nettest.NoPorts)
	if err != nil {
		t.Fatal(err)
	}
	nettest.Talk(t, a, b, other[0].String())
	nettest.Talk(t, a, a, "127.0.0.1")
	if ids, err := p.Holders(); err != nil || len(ids) != 2 {
		t.Errorf("held: %v, %v", ids, err)
	}
	// The configuration changes, its file goes, and podrun is another that knows of no plugins: what was
	// connected is released as it was connected. A pod of then is connected by podrun's own bridge.
	if err := os.Remove(filepath.Join(p.conf, "99-net.conflist")); err != nil {
		t.Fatal(err)
	}
	p.again(t)
	c := nettest.NewNS(t)
	own, err := p.setup("c", c, nettest.NoPorts)
	if err != nil || netip.MustParsePrefix("10.98.0.0/24").Contains(own[0]) {
		t.Errorf("%v, %v", own, err)
	}
	b.Close() // as after a reboot
	for _, id := range []string{"a", "b", "c", "never"} {
		p.release(t, id)
	}
	p.release(t, "a")
	p.empty(t)
}

func TestPluginsHostPort(t *testing.T) {
	web := nettest.PodWith(t, "web", "8080:80/TCP")
	bareNet := newPlugged(t)
	if _, err := bareNet.setup("a", nettest.NewNS(t), web); err == nil || !strings.Contains(err.Error(), "capability portMappings") {
		t.Errorf("error %v", err)
	}
	bareNet.release(t, "a")
	bareNet.empty(t)
	p := newPlugged(t, `{"type":"portmap","capabilities":{"portMappings":true},"snat":true}`)
	nettest.NeedIPTables(t, p.host)
	a := nettest.NewNS(t)
	if _, err := p.setup("a", a, web); err != nil {
		t.Fatal(err)
	}
	nettest.ServeTCP(t, a, ":80", "web")
	if got, err := nettest.Ask(p.host, "tcp", "127.0.0.1:8080"); !strings.HasPrefix(got, "web ") {
		t.Errorf("%q, %v", got, err)
	}
	var taken *network.PortInUseError
	if _, err := p.setup("b", nettest.NewNS(t), nettest.PodWith(t, "other", "8080:80/TCP")); !errors.As(err, &taken) || taken.By != "default/web" {
		t.Errorf("error %v", err)
	}
	p.release(t, "b")
	p.release(t, "a")
	if got, err := nettest.Ask(p.host, "tcp", "127.0.0.1:8080"); err == nil {
		t.Errorf("after the pod: %q", got)
	}
	if ids, err := p.Holders(); err != nil || len(ids) > 0 {
		t.Errorf("still held: %v, %v", ids, err)
	}
}

// TestPluginsMistakes: errors name the cause, and everything that was reserved can be released.
func TestPluginsMistakes(t *testing.T) {
	p := newPlugged(t)
	for _, c := range []struct{ file, text, want string }{
		{"05-bad.conflist", `{"cniVersion":"1.0.0"`, "05-bad.conflist cannot be used"},
		{"05-bad.conflist", `{"cniVersion":"1.0.0","name":"x","plugins":[]}`, "no plugin"},
		{"05-bad.conf", `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge"}]}`, "05-bad.conf cannot be used"},
		{"05-bad.conflist", `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"nosuch"}]}`, `failed to find plugin "nosuch"`},
	} {
		file := filepath.Join(p.conf, c.file)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.setup("a", nettest.NewNS(t), nettest.NoPorts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		p.release(t, "a") // though a plugin is missing: it took nothing
	}
	// A plugin that goes missing while a pod is connected is missed at the release, until it is there.
	dir := t.TempDir()
	script := []byte("#!/bin/sh\ncat >/dev/null; echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.98.7.7/24\"}]}'\n")
	if err := os.WriteFile(filepath.Join(dir, "nosuch"), script, 0o700); err != nil {
		t.Fatal(err)
	}
	p.again(t, pluginDir, dir)
	p.write(t, "05-mine.conflist", `{"type":"nosuch"}`)
	if addrs, err := p.setup("a", nettest.NewNS(t), nettest.NoPorts); err != nil || len(addrs) != 1 {
		t.Fatalf("%v, %v", addrs, err)
	}
	if err := os.Remove(filepath.Join(dir, "nosuch")); err != nil {
		t.Fatal(err)
	}
	if err := nettest.Try(p.host, func() error { return p.Teardown(context.Background(), "a") }); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(filepath.Join(p.dirs.Networks().CNI(), "a.json"), []byte(`{"confl`), 0o600); err != nil { // a power cut
		t.Fatal(err)
	}
	p.release(t, "a")
	p.empty(t)
}

// TestPluginsRepaired: what failed because of an error in the configuration is released when the
// configuration is corrected.
func TestPluginsRepaired(t *testing.T) {
	p := newPlugged(t)
	conflist := func(subnet string) {
		p.write(t, "10-net.conflist", fmt.Sprintf(`{"type":"bridge","bridge":"cnibr0","isGateway":true,
			"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":%q}]]}}`, p.ipam, subnet))
	}
	conflist("10.98.0.0/33")
	if _, err := p.setup("a", nettest.NewNS(t), nettest.NoPorts); err == nil || !strings.Contains(err.Error(), "10.98.0.0/33") {
		t.Fatalf("error %v", err)
	}
	if err := nettest.Try(p.host, func() error { return p.Teardown(context.Background(), "a") }); err == nil || !strings.Contains(err.Error(), "10.98.0.0/33") {
		t.Errorf("not repaired: %v", err)
	}
	conflist("10.98.0.0/24")
	p.release(t, "a")
	p.empty(t)
}
