package stream

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/shortage"
)

// Forward is a local port and the port of the pod to which it is forwarded.
type Forward struct {
	local, remote uint16
	// name is the name of the remote port, until Resolve finds its number. If same is true, the
	// local port is to be the same as the remote port.
	name string
	same bool
}

// ParseForwards checks the addresses to listen on, and parses a [LOCAL:]REMOTE for each forwarding.
func ParseForwards(addresses, specs []string) (all []Forward, err error) {
	for _, address := range addresses {
		if _, err := netip.ParseAddr(address); err != nil && address != "localhost" {
			return nil, fmt.Errorf("--address %q: must be an IP address or localhost", address)
		}
	}
	for _, spec := range specs {
		f, err := parseForward(spec)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// parseForward parses [LOCAL:]REMOTE.
func parseForward(spec string) (Forward, error) {
	local, remote, two := strings.Cut(spec, ":")
	if !two {
		local, remote = "", local
	}
	var f Forward
	if port, err := strconv.ParseUint(remote, 10, 16); err == nil && port > 0 {
		f.remote = uint16(port)
	} else if len(validation.IsValidPortName(remote)) == 0 {
		f.name = remote
	} else {
		return f, fmt.Errorf("%q: %q is no port: must be [LOCAL:]REMOTE, numbers from 1 to 65535 or a name", spec, remote)
	}
	if f.same = !two; f.same {
		f.local = f.remote
	} else if local != "" {
		port, err := strconv.ParseUint(local, 10, 16)
		if err != nil {
			return f, fmt.Errorf("%q: %q is no port: must be a number from 0 to 65535; 0 or none: a free one", spec, local)
		}
		f.local = uint16(port)
	}
	return f, nil
}

// Resolve finds the number of a named port in the containers of the pod.
func (f *Forward) Resolve(p *v1.Pod) error {
	if f.name == "" {
		return nil
	}
	if f.remote = namedPort(p, f.name); f.remote == 0 {
		return fmt.Errorf("%q is no port, and no container of the pod has one of that name", f.name)
	}
	if f.same {
		f.local = f.remote
	}
	return nil
}

func namedPort(p *v1.Pod, name string) uint16 {
	for _, c := range pod.AllContainers(p) {
		for _, port := range c.Ports {
			if port.Name == name && port.Protocol != v1.ProtocolUDP && port.Protocol != v1.ProtocolSCTP {
				return uint16(port.ContainerPort)
			}
		}
	}
	return 0
}

// Forwarder forwards connections to a pod.
type Forwarder struct {
	Out, ErrOut io.Writer
	// Dial connects to a port of the pod.
	Dial func(ctx context.Context, port uint16) (net.Conn, error)
	// Lost returns an error when the pod is gone for good, and when ctx ends. May be nil.
	Lost func(ctx context.Context) error
}

// Run listens and forwards connections until ctx ends or the pod is lost. It always returns an error.
func (w *Forwarder) Run(ctx context.Context, addresses []string, all []Forward) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	for _, f := range all {
		some, err := listenFor(addresses, f)
		listeners = append(listeners, some...)
		if err != nil {
			return err
		}
		for _, l := range some {
			fmt.Fprintf(w.Out, "Forwarding from %s -> %d\n", l.Addr(), f.remote)
			serving.Go(func() { w.serve(ctx, l, f.remote) })
		}
	}
	if w.Lost != nil {
		return w.Lost(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

// listenFor listens on the local port at each address. The address localhost stands for 127.0.0.1
// and, if the machine has IPv6, ::1. The returned listeners are open even if there is an error.
func listenFor(addresses []string, f Forward) ([]net.Listener, error) {
	var all []net.Listener
	for _, address := range addresses {
		hosts := []string{address}
		if address == "localhost" {
			hosts = []string{"127.0.0.1", "::1"}
		}
		port := f.local
		for i, host := range hosts {
			network := "tcp4" // else 0.0.0.0 stands for all of IPv6 too
			if strings.Contains(host, ":") {
				network = "tcp6"
			}
			l, err := net.Listen(network, net.JoinHostPort(host, strconv.Itoa(int(port))))
			if err != nil && i > 0 {
				continue // the machine may have no IPv6
			}
			if err != nil {
				return all, fmt.Errorf("listening on %s: %w", address, err)
			}
			all = append(all, shortage.Accepting(l))
			if tcp, ok := l.Addr().(*net.TCPAddr); ok {
				port = uint16(tcp.Port)
			}
		}
	}
	return all, nil
}

// serve accepts and forwards connections until the listener is closed. It returns when all
// connections have ended.
func (w *Forwarder) serve(ctx context.Context, l net.Listener, remote uint16) {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		open.Go(func() {
			defer conn.Close()
			if err := w.forwardConn(ctx, conn, remote); err != nil && ctx.Err() == nil {
				fmt.Fprintf(w.ErrOut, "error: forwarding to port %d: %s\n", remote, cli.Plain(err.Error()))
			}
		})
	}
}

// forwardConn connects to the current sandbox of the pod and copies data in both directions.
func (w *Forwarder) forwardConn(ctx context.Context, conn net.Conn, remote uint16) error {
	inside, err := w.Dial(ctx, remote)
	if err != nil {
		return err
	}
	defer inside.Close()
	defer context.AfterFunc(ctx, func() { conn.Close(); inside.Close() })()
	var copying sync.WaitGroup
	copying.Go(func() { copyHalf(inside, conn) })
	copying.Go(func() { copyHalf(conn, inside) })
	copying.Wait()
	return nil
}

// copyHalf copies data in one direction, then closes the write side of the destination.
func copyHalf(to, from net.Conn) {
	_, _ = io.Copy(to, from) // either side may close the connection
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
