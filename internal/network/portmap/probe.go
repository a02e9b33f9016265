package portmap

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Probe returns a *PortInUseError if a process of the machine has the port: forwarding would
// divert that process's packets without an error. It binds the port for a moment. An address that
// the machine does not have yet is no error.
func Probe(p pod.HostPort) error {
	at, err := hostAddr(p)
	if err != nil {
		return err
	}
	return probeAt(p, at)
}

func probeAt(p pod.HostPort, at netip.Addr) error {
	kind := unix.SOCK_STREAM
	if p.Protocol == v1.ProtocolUDP {
		kind = unix.SOCK_DGRAM
	}
	domain, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(p.Port), Addr: at.As16()})
	if at.Is4() {
		domain, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(p.Port), Addr: at.As4()}
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, int(protocolNumber(p.Protocol)))
	if err != nil {
		return nil // no process can use a protocol that the kernel does not support
	}
	defer unix.Close(fd)
	if kind == unix.SOCK_STREAM { // lingering connections do not block the port
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	if domain == unix.AF_INET {
		err = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1)
	} else { // the IPv4 port of the same number is probed separately
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1),
			unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1),
		)
	}
	if err != nil {
		return err
	}
	err = unix.Bind(fd, address)
	if errors.Is(err, unix.EADDRINUSE) {
		return &PortInUseError{Port: p}
	}
	if err != nil {
		return fmt.Errorf("host port %s: %w", p, err)
	}
	return nil
}

// hostAddr returns the machine's address that a port is for; the unspecified one for all.
func hostAddr(p pod.HostPort) (netip.Addr, error) {
	if p.HostIP == "" {
		return netip.IPv4Unspecified(), nil
	}
	addr, err := netip.ParseAddr(p.HostIP)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("host port %s: hostIP %q is not an IP address", p, p.HostIP)
	}
	return addr.Unmap(), nil
}

func protocolNumber(p v1.Protocol) byte {
	switch p {
	case v1.ProtocolUDP:
		return unix.IPPROTO_UDP
	case v1.ProtocolSCTP:
		return unix.IPPROTO_SCTP
	default:
		return unix.IPPROTO_TCP
	}
}
