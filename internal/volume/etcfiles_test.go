package volume

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// TestEtcNotLedAstray: the same for the files under /etc.
func TestEtcNotLedAstray(t *testing.T) {
	f := newFixture(t)
	etc := f.dirs().Revision("u1").Etc()
	outside := filepath.Join(t.TempDir(), "precious")
	if err := errors.Join(os.WriteFile(outside, []byte("mine"), 0o600), os.MkdirAll(etc, 0o755), os.Symlink(outside, etc+"/hosts")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Setup(t.Context(), podWith(), mounting(), pod.Sandbox{}); err == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestEtcOfAnyLength: a container has made a file of podrun's far longer than the machine's memory.
func TestEtcOfAnyLength(t *testing.T) {
	for _, length := range []int64{1, 100 << 30} {
		f := newFixture(t)
		p := podWith()
		want := f.etc(t, p, nil, "hosts")
		hosts := filepath.Join(f.dirs().Revision("u1").Etc(), "hosts")
		for name, again := range map[string]func() error{
			"start":   func() error { _, err := f.Setup(t.Context(), p, mounting(), pod.Sandbox{}); return err },
			"refresh": func() error { return f.RefreshHosts(p, pod.Sandbox{}) },
		} {
			if err := os.Truncate(hosts, length); err != nil {
				t.Skipf("no sparse files here: %v", err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := again()
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 1<<20 {
				t.Errorf("%s: %v, with %d bytes of memory", name, err, took)
			}
			if b, err := os.ReadFile(hosts); err != nil || string(b) != want {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
	}
}

// etc returns what the pod's file holds after a Setup.
func (f fixture) etc(t *testing.T, p *v1.Pod, ips []string, name string) string {
	t.Helper()
	mounts, err := f.Setup(t.Context(), p, mounting(), pod.Sandbox{IPs: ips})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if m.ContainerPath == "/etc/"+name {
			b, err := os.ReadFile(m.HostPath)
			if err != nil {
				t.Fatal(err)
			}
			if perm := mode(t, m.HostPath); perm != 0o644 {
				t.Errorf("%s has mode %v", name, perm)
			}
			return string(b)
		}
	}
	t.Fatalf("no %s among %+v", name, mounts)
	return ""
}

func TestEtcOfAPod(t *testing.T) {
	f := newFixture(t)
	f.put(t, "etc/resolv.conf", "search example.org\nnameserver 192.0.2.53\n")
	p := podWith()
	hosts := f.etc(t, p, []string{"10.64.0.2", "fd00::2"}, "hosts")
	for _, line := range []string{"127.0.0.1\tlocalhost\n", "::1\tlocalhost ip6-localhost ip6-loopback\n", "\n10.64.0.2\tweb-node1\nfd00::2\tweb-node1\n"} {
		if !strings.Contains(hosts, line) {
			t.Errorf("%q is not in %s", line, hosts)
		}
	}
	if !strings.HasPrefix(hosts, "# Written by podrun") {
		t.Errorf("no header in %s", hosts)
	}
	if got := f.etc(t, p, nil, "hostname"); got != "web-node1\n" {
		t.Errorf("hostname %q", got)
	}
	if got := f.etc(t, p, nil, "resolv.conf"); got != "nameserver 192.0.2.53\nsearch example.org\n" {
		t.Errorf("resolv.conf %q", got)
	}
}

// header is the first line of the hosts file.
const header = "# Written by podrun at each container start; changes made here are lost.\n"

func TestEtcWithHostNetwork(t *testing.T) {
	f := newFixture(t)
	f.put(t, "etc/hosts", "127.0.0.1 localhost\n192.0.2.2 thishost\n")
	f.put(t, "etc/resolv.conf", "nameserver 127.0.0.53\n")
	f.put(t, "run/systemd/resolve/resolv.conf", "nameserver 192.0.2.53\n")
	p := podWith()
	p.Spec.HostNetwork = true
	if got, want := f.etc(t, p, nil, "hosts"), header+"127.0.0.1 localhost\n192.0.2.2 thishost\n"; got != want {
		t.Errorf("hosts %q", got)
	}
	name, err := os.Hostname()
	if got := f.etc(t, p, nil, "hostname"); err != nil || got != name+"\n" {
		t.Errorf("hostname %q, %v", got, err)
	}
	if got := f.etc(t, p, nil, "resolv.conf"); got != "nameserver 127.0.0.53\n" {
		t.Errorf("resolv.conf %q", got)
	}
}

// TestResolvConfReachable: a pod with a network of its own has the host's servers that it can reach, and those behind
// systemd-resolved if there are none. A pod in the host's network has all of the host's. If no server is left, the log
// says so once.
func TestResolvConfReachable(t *testing.T) {
	const behind = "nameserver 192.0.2.53\n"
	const comment = "#nameserver 127.0.0.1\n"
	const none = "# No DNS servers known.\nsearch .\n" // as before DHCP
	for _, c := range []struct {
		conf, resolved, want string
		warns                bool
	}{
		{"nameserver 127.0.0.53\noptions edns0\n", behind, behind, false},
		{"nameserver 127.0.0.53\nnameserver ::1\nnameserver 0.0.0.0\n", behind, behind, false},
		{"nameserver ::ffff:127.0.0.1\n", behind, behind, false},
		{"nameserver 127.0.0.53\n", "", "nameserver 127.0.0.53\n", true},
		{"nameserver 127.0.0.53\noptions edns0\n", none, "nameserver 127.0.0.53\noptions edns0\n", true},
		{"nameserver 127.0.0.53\n", "nameserver fe80::1%eth0\n", "nameserver 127.0.0.53\n", true},
		{"nameserver 127.0.0.53\n", "nameserver fe80::1%eth0\n" + behind, behind, false},
		{"nameserver 127.0.0.1\nnameserver 192.0.2.1\nsearch example.org\n", behind, "nameserver 192.0.2.1\nsearch example.org\n", false},
		{"nameserver fe80::1%eth0\nnameserver 2001:db8::1\n", behind, "nameserver 2001:db8::1\n", false},
		{"nameserver fe80::1%eth0\n", behind, behind, false},
		{"nameserver 169.254.169.254\n", behind, "nameserver 169.254.169.254\n", false},
		{comment, behind, "", false},
		{"", behind, "", false},
	} {
		var log bytes.Buffer
		f := newFixture(t).with(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		f.put(t, "etc/resolv.conf", c.conf)
		if c.resolved != "" {
			f.put(t, "run/systemd/resolve/resolv.conf", c.resolved)
		}
		inHost, withOwn := podWith(), podWith()
		inHost.Spec.HostNetwork = true
		if got := f.etc(t, inHost, nil, "resolv.conf"); got != strings.TrimPrefix(c.conf, comment) {
			t.Errorf("%q gives %q in the host's network", c.conf, got)
		}
		withOwn.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"127.0.0.1", "192.0.2.7"}} // of its own container
		got := f.etc(t, withOwn, nil, "resolv.conf")
		if c.warns && !strings.HasPrefix(got, "nameserver 127.0.0.1\nnameserver 192.0.2.7\n") || log.Len() > 0 {
			t.Errorf("%q gives a pod with servers of its own %q; %s", c.conf, got, &log)
		}
		for range 2 {
			if got := f.etc(t, podWith(), nil, "resolv.conf"); got != c.want {
				t.Errorf("%q gives %q, want %q", c.conf, got, c.want)
			}
		}
		if got := strings.Count(log.String(), "no DNS"); got != 1 && c.warns || got != 0 && !c.warns {
			t.Errorf("%q: %s", c.conf, &log)
		}
	}
}

// TestEtcKeepsItsInode: a running container has the file mounted and must see the new address.
func TestEtcKeepsItsInode(t *testing.T) {
	f := newFixture(t)
	p := podWith()
	stat := func() (st syscall.Stat_t) {
		if err := syscall.Stat(f.dirs().Revision("u1").Etc()+"/hosts", &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	f.etc(t, p, []string{"10.64.15.254"}, "hosts")
	first := stat()
	f.etc(t, p, []string{"10.64.15.254"}, "hosts")
	if again := stat(); again.Mtim != first.Mtim {
		t.Error("written though nothing has changed")
	}
	hosts := f.etc(t, p, []string{"10.64.0.3"}, "hosts")
	if !strings.HasSuffix(hosts, "\n10.64.0.3\tweb-node1\n") || strings.Contains(hosts, "10.64.15.254") {
		t.Errorf("hosts %q", hosts)
	}
	if now := stat(); now.Ino != first.Ino {
		t.Error("the file was replaced")
	}
}

func TestEtcReadOnlyWithItsRoot(t *testing.T) {
	f := newFixture(t)
	yes := true
	c := &v1.Container{SecurityContext: &v1.SecurityContext{ReadOnlyRootFilesystem: &yes}}
	mounts, err := f.Setup(t.Context(), podWith(), c, pod.Sandbox{})
	if err != nil || len(mounts) != 3 {
		t.Fatal(mounts, err)
	}
	for _, m := range mounts {
		if !m.ReadOnly {
			t.Errorf("%s can be written", m.ContainerPath)
		}
	}
}

// TestEtcIsNotInMemory: files that containers can write to are on the disk of the root directory,
// as volumes are. The run directory is in memory, which the whole machine needs.
func TestEtcIsNotInMemory(t *testing.T) {
	f := newFixture(t)
	for _, c := range []*v1.Container{mounting(), {SecurityContext: &v1.SecurityContext{ReadOnlyRootFilesystem: new(true)}}} {
		mounts, err := f.Setup(t.Context(), podWith(), c, pod.Sandbox{})
		if err != nil || len(mounts) != 3 {
			t.Fatal(mounts, err)
		}
		for _, m := range mounts {
			if !strings.HasPrefix(m.HostPath, f.dirs().Pod("u1")+"/") {
				t.Errorf("%s is at %s", m.ContainerPath, m.HostPath)
			}
		}
	}
	if _, err := os.Lstat(f.dirs().Run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is in the run directory: %v", err)
	}
}

// TestEtcOfTheFormerVersion: containers that the former version started have another hosts file,
// which is updated too.
func TestEtcOfTheFormerVersion(t *testing.T) {
	f := newFixture(t)
	p := podWith()
	legacy := filepath.Join(f.dirs().Legacy().Etc("u1"), "hosts")
	write(t, legacy, "old")
	for range 2 {
		if err := f.RefreshHosts(p, pod.Sandbox{IPs: []string{"10.64.0.3"}}); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(legacy); err != nil || !strings.Contains(string(b), "10.64.0.3") {
			t.Errorf("%q, %v", b, err)
		}
		want := f.etc(t, p, []string{"10.64.0.2"}, "hosts") // another container is started
		if !strings.Contains(want, "10.64.0.2") {
			t.Errorf("%q", want)
		}
	}
}
