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
