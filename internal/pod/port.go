package pod

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// HostPort is a port of the host that is forwarded to a port of a pod.
type HostPort struct {
	Protocol v1.Protocol `json:"protocol"`
	// HostIP is the host address that the port is bound to; "" means all of them.
	HostIP string `json:"hostIP,omitempty"`
	Port   uint16 `json:"port"`
	// ContainerPort is the port in the pod.
	ContainerPort uint16 `json:"containerPort"`
}

// String returns PORT/PROTOCOL, with HOSTIP and a colon in front if there is one.
func (p HostPort) String() string {
	if p.HostIP == "" {
		return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}
	return fmt.Sprintf("%s:%d/%s", p.HostIP, p.Port, p.Protocol)
}

// HostPorts returns the host ports of all containers that run as long as the pod does, sidecars
// included, but not those of other init containers.
func HostPorts(p *v1.Pod) []HostPort {
	var out []HostPort
	add := func(c *v1.Container) {
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				out = append(out, HostPort{
					Protocol: cmp.Or(port.Protocol, v1.ProtocolTCP), HostIP: port.HostIP,
					Port: uint16(port.HostPort), ContainerPort: uint16(port.ContainerPort),
				})
			}
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; IsSidecar(c) {
			add(c)
		}
	}
	return out
}
