package vm

import (
	"fmt"
	"testing"
)

// outsider makes a network namespace that the machine reaches over a veth, with an HTTP server that says "outside".
func (m *machine) outsider() {
	m.t.Helper()
	m.sh(`ip netns add out
		ip link add m0 type veth peer name e0 netns out
		ip addr add 10.77.0.1/24 dev m0; ip addr add fd77::1/64 dev m0 nodad; ip link set m0 up
		ip -n out addr add 10.77.0.2/24 dev e0; ip -n out addr add fd77::2/64 dev e0 nodad
		ip -n out link set e0 up; ip -n out link set lo up
		ip route add default via 10.77.0.2; ip -6 route add default via fd77::2
		mkdir /tmp/out; echo outside > /tmp/out/x
		ip netns exec out busybox httpd -p 7000 -h /tmp/out`)
}

// TestNetworkd: systemd-networkd, which is to configure each link that there is, leaves those of pods alone. What a
// package's settings change of the machine's network, as they are read again, returns.
func TestNetworkd(t *testing.T) {
	m := bootServing(t)
	m.outsider()
	m.write("/etc/pods/hp.yaml", inContainer(podOf("hp", fmt.Sprintf(serves, "published", 80)),
		"ports: [{containerPort: 80, hostPort: 8080}]"))
	m.await("the pod", isReady("hp"))
	reached := func(when string) {
		t.Helper()
		for _, script := range []string{
			"[ $(ip netns exec out " + fmt.Sprintf(asks, "10.77.0.1") + "8080) = published ]",
			"[ $(ip netns exec out " + fmt.Sprintf(asks, "fd77::1") + "8080) = published ]",
			"[ $(" + inPod + fmt.Sprintf(asks, "10.77.0.2") + "7000) = outside ]",
		} {
			m.await(when, script)
		}
	}
	reached("at first")
	m.write("/etc/systemd/network/90-all.network", "[Match]\nName=!m0\n[Network]\nDHCP=yes\nIPv6AcceptRA=yes\n")
	m.sh("systemctl start systemd-networkd")
	m.await("networkd to have seen all links", "networkctl list --no-legend lo && ! networkctl list --no-legend | grep -E 'pending|initialized'")
	m.write("/etc/pods/new.yaml", podOf("new", "exec sleep 1d"))
	m.await("another pod", isReady("new"))
	t.Logf("links:\n%s", m.sh("networkctl list --no-legend; ip addr show podrun0"))
	for _, name := range []string{"podrun0", "'pr??????????'"} {
		if got := m.sh("networkctl list --no-legend " + name + " | grep -v unmanaged || true"); got != "" {
			t.Errorf("networkd configures links of podrun's: %s", got)
		}
	}
	reached("beside networkd")
	// A networkd that runs when the package comes.
	m.sh("rm /usr/lib/systemd/network/10-podrun.network; networkctl reload; " + aptGet + reinstall)
	m.await("networkd to leave podrun's links alone", "networkctl list --no-legend podrun0 | grep unmanaged")
	reached("after the package was installed beside networkd")
	m.write("/etc/sysctl.d/99-hardening.conf", "net.ipv4.ip_forward = 0\nnet.ipv6.conf.all.forwarding = 0\n")
	m.sh("systemctl restart systemd-sysctl")
	m.await("forwarding", "[ $(sysctl -n net.ipv4.ip_forward net.ipv6.conf.all.forwarding | tr -d '\\n') = 11 ]")
	reached("after the settings")
}
