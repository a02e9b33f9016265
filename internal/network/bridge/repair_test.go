package bridge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/sys/pace"
	"podrun.io/podrun/internal/test"
)

// flushed is a machine whose rules are flushed while a pod with a host port and another one run.
type flushed struct {
	host, outside, web, other netns.NsHandle
	br                        *Bridge
	log                       *test.Buffer
	secret                    net.PacketConn
}

func newFlushed(t *testing.T) *flushed {
	f := &flushed{host: nettest.NewNS(t), outside: nettest.NewNS(t), web: nettest.NewNS(t), other: nettest.NewNS(t), log: &test.Buffer{}}
	nettest.NeedIPTables(t, f.host)
	nettest.JoinOutside(t, f.host, f.outside)
	addIPv6(t, f.host, f.outside)
	f.br = New(Options{Dirs: layout.Dirs{Run: t.TempDir()}, Log: slog.New(slog.NewTextHandler(f.log, nil))})
	mustSetupPod(t, f.host, f.br, "web", f.web, nettest.PodWith(t, "web", "8080:80/TCP"))
	nettest.MustSetup(t, f.host, f.br, "other", f.other)
	nettest.ServeTCP(t, f.outside, ":90", "world")
	nettest.ServeTCP(t, f.web, ":80", "web")
	rec, _ := f.br.records.Load()
	nettest.In(t, f.host, func() (err error) { f.secret, err = net.ListenPacket("udp4", "127.0.0.1:99"); return err })
	t.Cleanup(func() { f.secret.Close() })
	nettest.In(t, f.other, func() error { return addRoute(t, "127.0.0.0/8", gatewayOf(rec.Subnet).String()) })
	return f
}

// tables are the names of the machine's tables, sorted.
func (f *flushed) tables(t *testing.T) []string {
	all := strings.Split(strings.TrimSpace(command(t, f.host, "nft list tables")), "\n")
	slices.Sort(all)
	return all
}

// works checks that traffic is as before the rules were flushed, and that the machine's loopback is guarded.
func (f *flushed) works(t *testing.T) {
	t.Helper()
	if got, err := nettest.Ask(f.web, "tcp", "192.0.2.1:90"); got != "world 192.0.2.2" {
		t.Errorf("a pod asks the world: %q, %v", got, err)
	}
	if got, err := nettest.Ask(f.outside, "tcp", "192.0.2.2:8080"); got != "web 192.0.2.1" {
		t.Errorf("the world asks a pod: %q, %v", got, err)
	}
	nettest.In(t, f.other, func() error { return shout("127.0.0.1:99", "the pod") })
	nettest.In(t, f.host, func() error { return shout("127.0.0.1:99", "the machine") })
	buf := make([]byte, 100)
	if n, _, err := f.secret.ReadFrom(buf); err != nil || string(buf[:n]) != "the machine" {
		t.Errorf("the machine's loopback hears %q, %v", buf[:n], err)
	}
}

// TestFlushedRulesReturnWithAPod: a pod that starts after all rules were flushed, or those of iptables, or after Docker
// has set its policy, brings back all that were for other pods.
func TestFlushedRulesReturnWithAPod(t *testing.T) {
	const docker = "iptables-nft -P FORWARD DROP; iptables-nft -N DOCKER-USER; iptables-nft -A FORWARD -j DOCKER-USER"
	for name, c := range map[string]struct{ before, change string }{
		"all":                 {"", "nft flush ruleset"},
		"all, and a firewall": {docker, "nft flush ruleset; iptables-nft -P FORWARD DROP"},
		"iptables'":           {"iptables-nft -P FORWARD DROP", "iptables-nft -F"},
		"iptables' by Docker": {docker, "iptables-nft -F"},
		"Docker starts":       {"", docker},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlushed(t)
			command(t, f.host, "sysctl -qw net.ipv4.ip_forward=1; "+c.before)
			nettest.In(t, f.host, f.br.Repair)
			ours := slices.DeleteFunc(f.tables(t), func(name string) bool { return strings.HasSuffix(name, " filter") })
			command(t, f.host, c.change)
			nettest.MustSetup(t, f.host, f.br, "new", nettest.NewNS(t))
			for _, table := range ours {
				if !slices.Contains(f.tables(t), table) {
					t.Errorf("%s is missing", table)
				}
			}
			if n := strings.Count(f.log.String(), "are restored"); n != 1 {
				t.Errorf("logged %d times: %s", n, f.log)
			}
			f.works(t)
			nettest.MustSetup(t, f.host, f.br, "next", nettest.NewNS(t))
			if n := strings.Count(f.log.String(), "are restored"); n != 1 {
				t.Errorf("restored again for the next pod: %s", f.log)
			}
		})
	}
}

// watching runs Watch on the machine until stop is called, which returns when it has ended.
func (f *flushed) watching(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- nettest.Try(f.host, func() error { return f.br.Watch(ctx) }) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestWatch: flushed rules return without a new pod, each time, and podrun's own changes are none of another program's.
// Who removes them at once each time is left alone for a while.
func TestWatch(t *testing.T) {
	f := newFlushed(t)
	f.br.repairs = pace.Pace{AtOnce: 3, Every: 24 * time.Hour}
	before := f.tables(t)
	stop := f.watching(t)
	defer stop()
	for i, change := range []string{
		"nft flush ruleset",
		"nft -f - <<'E'\nflush ruleset\ntable inet mine {\n chain forward { type filter hook forward priority filter; }\n}\nE",
		"nft flush ruleset; iptables-nft -P FORWARD DROP; sysctl -qw net.ipv4.ip_forward=0",
	} {
		command(t, f.host, change)
		test.Eventually(t, change, func() bool { return strings.Count(f.log.String(), "are restored") == i+1 })
		f.works(t)
		if i == 0 && !slices.Equal(f.tables(t), before) {
			t.Errorf("tables %q, want %q", f.tables(t), before)
		}
	}
	command(t, f.host, "nft flush ruleset")
	test.Eventually(t, "it is too much", func() bool { return strings.Count(f.log.String(), "again and again") == 1 })
	stop()
	if n := strings.Count(f.log.String(), "are restored"); n != 3 {
		t.Errorf("restored %d times: %s", n, f.log)
	}
}

// TestWatchWithoutPods: no rules are made for a bridge that is not there, and a bridge that is made later is watched.
func TestWatchWithoutPods(t *testing.T) {
	f := newFlushed(t)
	nettest.Teardown(t, f.host, f.br, "web")
	nettest.Teardown(t, f.host, f.br, "other")
	defer f.watching(t)()
	command(t, f.host, "nft add table inet mine; nft delete table inet mine")
	nettest.Bare(t, f.host, f.br.identity.run)
	pod := nettest.NewNS(t)
	mustSetupPod(t, f.host, f.br, "later", pod, nettest.PodWith(t, "later", "8080:80/TCP"))
	command(t, f.host, "nft flush ruleset")
	test.Eventually(t, "the rules return", func() bool { return strings.Count(f.log.String(), "are restored") == 1 })
	if got, err := nettest.Ask(pod, "tcp", "192.0.2.1:90"); got != "world 192.0.2.2" {
		t.Errorf("a pod asks the world: %q, %v", got, err)
	}
}

// owned makes another process's own table of iptables' rules, which drop what is forwarded, until free is called.
func (f *flushed) owned(t *testing.T) (free func()) {
	owner := exec.Command("nft", "-i")
	stdin, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	nettest.In(t, f.host, owner.Start)
	free = sync.OnceFunc(func() {
		if err := errors.Join(stdin.Close(), owner.Wait()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(free)
	if _, err := io.WriteString(stdin, "add table ip filter { flags owner; }\n"+
		"add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }\n"); err != nil {
		t.Fatal(err)
	}
	test.Eventually(t, "the other's table", func() bool {
		return strings.Contains(command(t, f.host, "nft list ruleset"), "policy drop")
	})
	return free
}

// TestRefusedRules: what the kernel refuses, as in a table that belongs to another process alone, is not tried again for
// each pod, but after a while.
func TestRefusedRules(t *testing.T) {
	f := newFlushed(t)
	f.owned(t)
	tried := 0
	var last map[string]uint64
	start := func(id string) {
		t.Helper()
		nettest.MustSetup(t, f.host, f.br, id, nettest.NewNS(t))
		tables, err := f.br.records.Tables()
		if err != nil || len(tables) == 0 {
			t.Fatalf("tables %v, %v", tables, err)
		}
		if !maps.Equal(tables, last) { // all are made anew
			tried, last = tried+1, tables
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		start(id)
	}
	if warned := strings.Count(f.log.String(), "a firewall may keep"); tried != 1 || warned != 1 {
		t.Errorf("tried %d times, warned %d times: %s", tried, warned, f.log)
	}
	f.br.rules.refused.Set(nil, 0)
	if start("d"); tried != 2 {
		t.Errorf("after a while, tried %d times: %s", tried, f.log)
	}
	if strings.Contains(f.log.String(), "are restored") {
		t.Errorf("what was refused is said to be restored: %s", f.log)
	}
}

// TestRefusedRulesThatAreGone: what was refused in a table that is not there any more is not refused in a new one of the
// same name.
func TestRefusedRulesThatAreGone(t *testing.T) {
	f := newFlushed(t)
	free := f.owned(t)
	nettest.MustSetup(t, f.host, f.br, "a", nettest.NewNS(t))
	free()
	nettest.MustSetup(t, f.host, f.br, "b", nettest.NewNS(t))
	command(t, f.host, "sysctl -qw net.ipv4.ip_forward=1; iptables-nft -P FORWARD DROP")
	nettest.MustSetup(t, f.host, f.br, "c", nettest.NewNS(t))
	f.works(t)
}

// TestRulesAreListedOnce: as long as nothing changes the machine's rules, they are not listed for the next pod. That
// another machine is asked, whose rules have had as many changes and are none of the bridge's, shows it.
func TestRulesAreListedOnce(t *testing.T) {
	f := newFlushed(t)
	rec, _ := f.br.records.Load()
	var want, got uint32
	nettest.In(t, f.host, func() (err error) {
		if gone, err := f.br.rules.missing(rec); err != nil || len(gone) > 0 {
			t.Errorf("missing %q, %v", gone, err)
		}
		want, err = nft.Generation()
		return err
	})
	bare := nettest.NewNS(t)
	missing := func() (gone []string) {
		nettest.In(t, bare, func() (err error) { gone, err = f.br.rules.missing(rec); return err })
		return gone
	}
	for i := 0; got != want; i++ {
		if got > want {
			t.Fatalf("generation %d, want %d", got, want)
		}
		command(t, bare, "nft add table inet mine"+strconv.Itoa(i))
		nettest.In(t, bare, func() (err error) { got, err = nft.Generation(); return err })
	}
	if gone := missing(); len(gone) > 0 {
		t.Errorf("listed again: %q", gone)
	}
	command(t, bare, "nft add table inet other")
	if gone := missing(); len(gone) != 5 {
		t.Errorf("after a change, missing: %q", gone)
	}
}

// TestWatchKeepsNoPodWaiting: a look at rules that are complete needs no lock, also after podrun's own changes. The next
// pod then needs none.
func TestWatchKeepsNoPodWaiting(t *testing.T) {
	f := newFlushed(t)
	lock, err := f.br.records.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	defer f.watching(t)()
	test.Eventually(t, "the rules are complete", func() bool {
		var now uint32
		nettest.In(t, f.host, func() (err error) { now, err = nft.Generation(); return err })
		seen := f.br.rules.read.Load()
		return seen != nil && seen.generation == now
	})
}

// TestBlockingFirewallIsNoRefusal: a firewall that podrun does not change is no reason to leave others as they are.
func TestBlockingFirewallIsNoRefusal(t *testing.T) {
	f := newFlushed(t)
	command(t, f.host, "nft 'table inet mine { chain forward { type filter hook forward priority 0; policy drop; }; }'")
	nettest.In(t, f.host, f.br.Repair)
	rec, _ := f.br.records.Load()
	command(t, f.host, "nft delete table ip "+rec.Bridge)
	nettest.MustSetup(t, f.host, f.br, "new", nettest.NewNS(t))
	if n := strings.Count(f.log.String(), "are restored"); n != 1 {
		t.Errorf("restored %d times: %s", n, f.log)
	}
	if n := strings.Count(f.log.String(), "a firewall may keep"); n != 1 {
		t.Errorf("warned %d times: %s", n, f.log)
	}
}

// TestAdministratorsRules: podrun takes no rule of others for its own, however much it is like one: it neither removes
// it nor does without its own for it. Rules for the bridge stay effective when they are loaded anew.
func TestAdministratorsRules(t *testing.T) {
	const forbidden = "-A FORWARD -i BRIDGE -p tcp -m tcp --dport 91 -j REJECT --reject-with tcp-reset"
	for name, rules := range map[string][]string{
		"one":               {forbidden},
		"two":               {forbidden, "-A FORWARD -i BRIDGE -p tcp -m tcp --dport 92 -j DROP"},
		"three":             {forbidden, "-A FORWARD -i BRIDGE -d 169.254.169.254/32 -j DROP", "-A FORWARD -o BRIDGE -p tcp -m tcp --dport 25 -j DROP"},
		"ways in and out":   {forbidden, "-A FORWARD -i BRIDGE -o other -j ACCEPT", "-A FORWARD -i other -o BRIDGE -j DROP"},
		"all that begin so": {forbidden, "-A FORWARD -i BRIDGE+ -p udp -j ACCEPT", "-A FORWARD -o BRIDGE+ -p udp -j ACCEPT"},
		"others":            {forbidden, "-A FORWARD ! -i BRIDGE -p udp -j ACCEPT", "-A FORWARD ! -o BRIDGE -p udp -j ACCEPT"},
		"with a remark":     {forbidden, `-A FORWARD -i BRIDGE -p udp -m comment --comment "mine" -j ACCEPT`},
	} {
		for _, policy := range []string{"DROP", "ACCEPT"} {
			t.Run(name+", "+policy, func(t *testing.T) { testAdministratorsRules(t, rules, policy) })
		}
	}
}

func testAdministratorsRules(t *testing.T, rules []string, policy string) {
	f := newFlushed(t)
	rec, _ := f.br.records.Load()
	text := strings.ReplaceAll(strings.Join(rules, "\n"), "BRIDGE", rec.Bridge)
	load := "nft flush ruleset; iptables-nft-restore <<'E'\n*filter\n:FORWARD " + policy + "\n" + text + "\nCOMMIT\nE"
	command(t, f.host, load)
	before := command(t, f.host, "iptables-nft -S FORWARD")
	nettest.ServeTCP(t, f.outside, ":91", "forbidden")
	want := map[string]int{"DROP": 2}[policy]
	check := func(when string) {
		t.Helper()
		nettest.In(t, f.host, f.br.Repair)
		during := command(t, f.host, "iptables-nft -S FORWARD")
		others := during
		for _, own := range []string{"-A FORWARD -i BRIDGE -j ACCEPT\n", "-A FORWARD -o BRIDGE -j ACCEPT\n"} {
			others = strings.Replace(others, strings.ReplaceAll(own, "BRIDGE", rec.Bridge), "", 1)
		}
		if n := strings.Count(during, "\n") - strings.Count(before, "\n"); others != before || n != want {
			t.Errorf("%s: rules\n%swant those and %d of podrun's:\n%s", when, during, want, before)
		}
		if got, err := nettest.Ask(f.web, "tcp", "192.0.2.1:91"); err == nil {
			t.Errorf("%s: what the administrator forbids: %q", when, got)
		}
	}
	check("at first")
	f.works(t)
	check("again")
	if policy == "DROP" { // one of the two is removed
		command(t, f.host, "iptables-nft -D FORWARD -o "+rec.Bridge+" -j ACCEPT")
		check("completed")
	}
	command(t, f.host, "rules=$(iptables-nft-save); echo \"$rules\" | iptables-nft-restore")
	check("saved and restored")
	for _, id := range []string{"web", "other"} {
		nettest.Teardown(t, f.host, f.br, id)
	}
	if after := command(t, f.host, "iptables-nft -S FORWARD"); after != before {
		t.Errorf("afterwards\n%swant\n%s", after, before)
	}
}

// TestRulesWrittenByNft: nft writes names of links in another way than iptables, also podrun's rules when it restores them.
func TestRulesWrittenByNft(t *testing.T) {
	f := newFlushed(t)
	rec, _ := f.br.records.Load()
	command(t, f.host, "nft flush ruleset; nft add table ip filter; "+
		"nft add chain ip filter FORWARD '{ type filter hook forward priority 0; policy drop; }'; "+
		"nft insert rule ip filter FORWARD iifname "+rec.Bridge+" tcp dport 91 reject")
	nettest.ServeTCP(t, f.outside, ":91", "forbidden")
	rules := func() int {
		t.Helper()
		return strings.Count(command(t, f.host, "nft list chain ip filter FORWARD"), rec.Bridge)
	}
	for n := range 4 {
		nettest.In(t, f.host, f.br.Repair)
		if got, err := nettest.Ask(f.web, "tcp", "192.0.2.1:91"); err == nil {
			t.Errorf("%d: what the administrator forbids: %q", n, got)
		}
		if got := rules(); got != 3 {
			t.Errorf("%d: %d rules", n, got)
		}
		f.works(t)
		command(t, f.host, `rules=$(nft list table ip filter); nft delete table ip filter; echo "$rules" | nft -f -`)
	}
	for _, id := range []string{"web", "other"} {
		nettest.Teardown(t, f.host, f.br, id)
	}
	if got := rules(); got != 1 {
		t.Errorf("afterwards: %d rules", got)
	}
}
