package bridge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/network/records"
	"podrun.io/podrun/internal/test"
)

// TestManyPods: the rules for many pods are installed at once, also after others have removed them.
func TestManyPods(t *testing.T) {
	const pods = 1023 // the kernel gives a bridge no more ports (BR_MAX_PORTS)
	m := newReloaded(t)
	m.pod("pod")
	rec, err := m.br.records.Load()
	test.Must(t, err)
	ips := filepath.Join(m.br.records.Path, records.AddressDir)
	held, err := m.br.addresses.owners()
	test.Must(t, err)
	for addr, i := gatewayOf(rec.Subnet).Next(), len(held); i < pods; addr = addr.Next() {
		if _, taken := held[addr]; !taken {
			test.Must(t, os.Symlink(fmt.Sprint("pod", i), filepath.Join(ips, addr.String())))
			i++
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
	for set, want := range map[string]int{"ports": pods, "hardware-addresses": pods, "addresses": pods, "addresses6": 2 * pods} {
		got := strings.Count(command(t, m.host, "nft list set bridge "+rec.Bridge+" "+set), `"pr`)
		if got != want {
			t.Errorf("set %s has %d elements, want %d", set, got, want)
		}
	}
	if advertised != 2*pods { // the pod's own address and that of its link
		t.Errorf("%d addresses can be advertised, want %d", advertised, 2*pods)
	}
}

// TestFullBridge: the error of a pod that the bridge has no port for says so.
func TestFullBridge(t *testing.T) {
	m := newReloaded(t)
	m.pod("pod")
	rec, err := m.br.records.Load()
	test.Must(t, err)
	command(t, m.host, "for i in $(seq 511); do echo link add one$i master "+rec.Bridge+" type veth peer name two$i; "+
		"echo link set two$i master "+rec.Bridge+"; done | ip -batch -")
	if _, err := nettest.Setup(m.host, m.br, "more", nettest.NewNS(t)); !errors.Is(err, unix.EXFULL) ||
		!strings.Contains(err.Error(), "1,023 pods") {
		t.Errorf("error %v", err)
	}
}
