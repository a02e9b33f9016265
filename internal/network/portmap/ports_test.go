package portmap

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func TestHostPortString(t *testing.T) {
	for want, p := range map[string]pod.HostPort{
		"80/TCP":          {Protocol: v1.ProtocolTCP, Port: 80, ContainerPort: 1},
		"10.0.0.1:53/UDP": {Protocol: v1.ProtocolUDP, HostIP: "10.0.0.1", Port: 53},
	} {
		if p.String() != want {
			t.Errorf("%s, want %s", p, want)
		}
	}
}

// TestPortOfAProcess: the error has the command that shows which process has the port.
func TestPortOfAProcess(t *testing.T) {
	for protocol, command := range map[v1.Protocol]string{
		v1.ProtocolTCP: "ss -ltnp", v1.ProtocolUDP: "ss -lunp", v1.ProtocolSCTP: "ss -lSnp",
	} {
		err := &PortInUseError{Port: pod.HostPort{Protocol: protocol, Port: 53}}
		want := "host port 53/" + string(protocol) + " is in use by a process of this machine; " + command + " 'sport = :53' shows it"
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
