package firewall

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/sys"
)

// The rules of an iptables of the kernel's from before nftables are none of nftables': a packet has to pass both.
// podrun reads them only, by the program that makes them.
var legacies = []struct {
	program string
	names   string // the file with the names of the tables that are there
}{
	{"iptables-legacy", "/proc/thread-self/net/ip_tables_names"},
	{"ip6tables-legacy", "/proc/thread-self/net/ip6_tables_names"},
}

// legacyTime is how long a program may take to list its rules.
const legacyTime = 10 * time.Second

// ByLegacy returns an error if an iptables-legacy drops or rejects what is forwarded and lacks a rule that accepts what
// comes from the bridge or goes to it. It says which rules are needed; podrun changes none of them. It looks again when
// other tables of iptables-legacy are there.
func (w *Warned) ByLegacy(bridge string) error {
	tables := make([]string, len(legacies))
	for i, l := range legacies {
		names, _ := os.ReadFile(l.names) // trusted: the kernel's, if it has them loaded; to list others would make them
		tables[i] = string(names)
	}
	w.mu.Lock()
	same := slices.Equal(w.legacy, tables)
	w.legacy = tables
	w.mu.Unlock()
	if same {
		return nil
	}
	var blocked blockingError
	for i, l := range legacies {
		if !slices.Contains(strings.Fields(tables[i]), iptablesTable) {
			continue
		}
		list := sys.Program{Name: l.program, Options: []string{"-w", "1", "-S"}}
		out, err := list.Run(context.Background(), legacyTime)
		if errors.Is(err, sys.ErrNoProgram) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the rules of %s: %w: %s", l.program, err, out.Text())
		}
		if !out.Truncated && legacyBlocks(string(out.Stdout), bridge) {
			blocked = append(blocked, blockingChain{l.program, forwardChain, bridge})
		}
	}
	if len(blocked) > 0 {
		return blocked
	}
	return nil
}

// legacyBlocks reports whether FORWARD's policy or its last rule drops or rejects all packets, while no chain of the
// table has a rule that accepts all from the bridge, or all to it.
func legacyBlocks(rules, bridge string) bool {
	drops, last, in, out := false, "", false, false
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		drops = drops || line == "-P FORWARD DROP"
		if strings.HasPrefix(line, "-A FORWARD ") {
			last = line
		}
		in = in || strings.HasSuffix(line, " -i "+bridge+" -j ACCEPT")
		out = out || strings.HasSuffix(line, " -o "+bridge+" -j ACCEPT")
	}
	drops = drops || last == "-A FORWARD -j DROP" || strings.HasPrefix(last, "-A FORWARD -j REJECT")
	return drops && (!in || !out)
}
