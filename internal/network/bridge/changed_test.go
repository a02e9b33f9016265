package bridge

import (
	"strings"
	"testing"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/test"
)

// TestChangedNetwork: what other programs change of the bridge and of forwarding returns, by itself and with the next pod,
// and pods that run have their network as before.
func TestChangedNetwork(t *testing.T) {
	for name, change := range map[string]string{
		"forwarding": "sysctl -qw net.ipv4.ip_forward=0",
		"addresses":  "ip addr flush dev BRIDGE",
		"down":       "ip link set BRIDGE down",
		"bridge":     "ip link del BRIDGE",
	} {
		for _, watched := range []bool{true, false} {
			t.Run(name+map[bool]string{true: " watched", false: " by a pod"}[watched], func(t *testing.T) {
				f := newFlushed(t)
				rec, err := f.br.records.Load()
				test.Must(t, err)
				f.works(t)
				if watched {
					defer f.watching(t)()
				}
				command(t, f.host, strings.ReplaceAll(change, "BRIDGE", rec.Bridge))
				if watched {
					test.Eventually(t, change, func() bool { return strings.Contains(f.log.String(), "is restored") })
				} else {
					nettest.MustSetup(t, f.host, f.br, "new", nettest.NewNS(t))
				}
				f.works(t)
			})
		}
	}
}
