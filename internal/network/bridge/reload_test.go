package bridge

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/test"
)

// reloaded is a machine whose administrator saves all its rules in a file, and loads it later.
type reloaded struct {
	*testing.T
	host, outside netns.NsHandle
	run, boot     string
	br            *Bridge
	log           *test.Buffer
}

func newReloaded(t *testing.T) *reloaded {
	m := &reloaded{T: t, run: t.TempDir(), boot: "one", log: &test.Buffer{}}
	m.newMachine()
	m.newPodrun()
	return m
}

// newMachine gives the machine other namespaces, as when it has booted.
func (m *reloaded) newMachine() {
	m.host, m.outside = nettest.NewNS(m), nettest.NewNS(m)
	nettest.JoinOutside(m.T, m.host, m.outside)
	addIPv6(m.T, m.host, m.outside)
}

// newPodrun is another process of the run directory from now on.
func (m *reloaded) newPodrun() {
	boot := m.boot
	m.br = New(Options{
		Dirs: layout.Dirs{Run: m.run}, Log: slog.New(slog.NewTextHandler(m.log, nil)), Keep: true,
		Boot: func() (string, error) { return boot, nil },
	})
}

func (m *reloaded) pod(id string, ports ...string) {
	m.Helper()
	mustSetupPod(m.T, m.host, m.br, id, nettest.NewNS(m), nettest.PodWith(m, id, ports...))
}

// save returns what load makes the rules of the machine again.
func (m *reloaded) save() string {
	m.Helper()
	return "flush ruleset\n" + command(m, m.host, "nft list ruleset")
}

func (m *reloaded) load(saved string) {
	m.Helper()
	command(m, m.host, "nft -f - <<'E'\n"+saved+"\nE")
}

// rules returns the lines of all rules, in an order that does not depend on when each was made.
func (m *reloaded) rules() []string {
	m.Helper()
	return slices.Sorted(strings.Lines(command(m, m.host, "nft -s list ruleset")))
}

// restores fails the test if another number of repairs than want is logged when what is missing has been restored.
func (m *reloaded) restores(want int) {
	m.Helper()
	before := strings.Count(m.log.String(), "are restored")
	nettest.In(m, m.host, func() error { return keeper{m.br}.restorePaced(m.Context()) })
	if got := strings.Count(m.log.String(), "are restored") - before; got != want {
		m.Errorf("restored %d times, want %d: %s", got, want, m.log)
	}
}

// TestListedRulesLoad: a file that an administrator writes with nft list ruleset is one that nft loads, and the same
// rules again: the kernel loads all of a file or nothing.
func TestListedRulesLoad(t *testing.T) {
	m := newReloaded(t)
	command(t, m.host, "nft add table ip filter; "+
		"nft add chain ip filter FORWARD '{ type filter hook forward priority 0; policy drop; }'")
	m.pod("web", "8080:80/TCP", "8053:53/UDP", "192.0.2.2:81:80/TCP", "[2001:db8::2]:81:80/TCP")
	m.pod("other")
	before := m.rules()
	m.load(m.save())
	if after := m.rules(); !slices.Equal(after, before) {
		t.Errorf("loaded anew:\n%swant\n%s", after, before)
	}
}

// TestFormerRulesAreReplaced: rules of podrun's that were in a file are none that podrun has installed. They forward
// ports to pods that have ended, and newer pods are missing.
func TestFormerRulesAreReplaced(t *testing.T) {
	for name, ports := range map[string][2][]string{
		"other ports": {{"8080:80/TCP"}, {"8081:80/TCP"}},
		"no port":     {{"8080:80/TCP"}, nil},
		"IPv4 alone":  {{"8080:80/TCP"}, {"192.0.2.2:8081:80/TCP"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newReloaded(t)
			m.pod("former", ports[0]...)
			saved := m.save()
			nettest.Teardown(t, m.host, m.br, "former")
			m.pod("pod", ports[1]...)
			nettest.In(t, m.host, m.br.Repair)
			want := m.rules()
			m.load(saved)
			m.restores(1)
			m.newPodrun()
			m.restores(0)
			if after := m.rules(); !slices.Equal(after, want) {
				t.Errorf("after the repair:\n%s\nwant\n%s", after, want)
			}
		})
	}
}

// TestFormerRulesAtBoot: what the machine loads of podrun's rules at boot is gone with the first pod.
func TestFormerRulesAtBoot(t *testing.T) {
	for name, ports := range map[string][]string{"other ports": {"8081:80/TCP"}, "no port": nil} {
		t.Run(name, func(t *testing.T) {
			m := newReloaded(t)
			m.pod("former", "5432:5432/TCP")
			saved := m.save()
			m.boot = "two"
			m.newMachine()
			m.newPodrun()
			m.load(saved)
			m.pod("pod", ports...)
			if rules := strings.Join(m.rules(), ""); strings.Contains(rules, "5432") {
				t.Errorf("a port is diverted that no pod has:\n%s", rules)
			}
			m.restores(0)
		})
	}
}

// TestRulesOfAnOlderPodrun: a podrun that has not recorded which tables are its own has them replaced, once.
func TestRulesOfAnOlderPodrun(t *testing.T) {
	m := newReloaded(t)
	ns := nettest.NewNS(t)
	mustSetupPod(t, m.host, m.br, "web", ns, nettest.PodWith(t, "web", "5353:53/UDP"))
	serveUDP(t, ns, ":53", "web")
	ask := flowTo(t, m.outside, "192.0.2.2:5353")
	ask("web")
	before := m.rules()
	rec, err := m.br.records.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(m.br.records.Path, "bridge.json")); err != nil {
		t.Fatal(err)
	}
	if err := m.br.records.Save(rec); err != nil {
		t.Fatal(err)
	}
	m.newPodrun()
	m.restores(1)
	m.restores(0)
	m.newPodrun()
	m.restores(0)
	ask("web")
	if after := m.rules(); !slices.Equal(after, before) {
		t.Errorf("replaced by\n%swant\n%s", after, before)
	}
}
