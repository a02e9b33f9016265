package nettest

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

// PodWith is a pod with host ports, each as "hostIP:hostPort:containerPort/protocol" with hostIP optional.
func PodWith(t testing.TB, name string, ports ...string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1.PodSpec{Containers: []v1.Container{{}}},
	}
	for _, text := range ports {
		numbers, protocol, _ := strings.Cut(text, "/")
		port := v1.ContainerPort{Protocol: v1.Protocol(protocol)}
		if ip, rest, ok := strings.Cut(strings.TrimPrefix(numbers, "["), "]:"); ok {
			port.HostIP, numbers = ip, rest
		}
		fields := strings.Split(numbers, ":")
		if len(fields) == 3 {
			port.HostIP, fields = fields[0], fields[1:]
		}
		if _, err := fmt.Sscan(strings.Join(fields, " "), &port.HostPort, &port.ContainerPort); err != nil {
			t.Fatal(err)
		}
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, port)
	}
	return p
}

// SetupPod connects p, by ns or, if that is netns.None, in the host's network. It returns the pod's IPv4 address.
func SetupPod(
	host netns.NsHandle, b Network, id string, ns netns.NsHandle, p *v1.Pod,
) (addr netip.Addr, err error) {
	netns := ""
	if ns >= 0 {
		netns = Path(ns)
	}
	err = Try(host, func() error {
		addrs, err := b.Setup(context.Background(), id, netns, p)
		if err == nil && len(addrs) > 0 {
			addr = addrs[0]
		}
		return err
	})
	return addr, err
}

// Limited is a pod whose network is held to what its annotations say.
func Limited(ingress, egress string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.Annotations = "default", "limited", map[string]string{}
	for key, value := range map[string]string{pod.AnnotationIngress: ingress, pod.AnnotationEgress: egress} {
		if value != "" {
			p.Annotations[key] = value
		}
	}
	return p
}
