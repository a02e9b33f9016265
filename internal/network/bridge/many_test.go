package bridge

import (
	"fmt"
	"strings"
	"testing"

	"podrun.io/podrun/internal/network/nettest"
)

// TestManyPods: the rules for many pods are installed at once, also after others have removed them.
func TestManyPods(t *testing.T) {
	const pods = 300
	m := newReloaded(t)
	m.pod("pod")
	rec, err := m.br.records.Load()
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods - 1 {
		if _, err := m.br.addresses.allocate(rec, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	nettest.In(t, m.host, m.br.Repair)
	m.restores(0)
	command(t, m.host, "nft flush ruleset")
	m.restores(1)
	m.restores(0)
	if said := m.log.String(); strings.Contains(said, "cannot prevent pods") {
		t.Errorf("said %s", said)
	}
	var advertised int
	for _, line := range m.rules() {
		if strings.Contains(line, "icmpv6 taddr") || strings.Contains(line, "@th,64,128") {
			advertised++
		}
	}
	if advertised != 2*pods { // the pod's own address and that of its link
		t.Errorf("%d addresses can be advertised, want %d", advertised, 2*pods)
	}
}
