package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sandbox"
)

func (a *app) portForwardCommand() *cobra.Command {
	var namespace string
	var addresses []string
	c := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]REMOTE...",
		Short: "Forward local ports to a pod",
		Long: "port-forward listens on the port LOCAL of this machine and connects to the port REMOTE at\n" +
			"localhost inside the pod, so it also reaches processes that listen only there. REMOTE is the\n" +
			"number of a port, or its name in the manifest. LOCAL defaults to REMOTE; :REMOTE selects a free\n" +
			"local port. port-forward continues across restarts of the pod until it is interrupted. It forwards\n" +
			"TCP only.",
		Example: "  podrun port-forward web 8080:80\n  podrun port-forward web :http\n" +
			"  podrun port-forward db 5432 --address 192.0.2.1",
		Args:              argCount(2, many),
		ValidArgsFunction: a.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			var all []forward
			for _, spec := range args[1:] {
				f, err := parseForward(spec)
				if err != nil {
					return usage(c, err)
				}
				all = append(all, f)
			}
			p, err := a.pods().Named(namespace, args[0])
			if err != nil {
				return err
			}
			for i := range all {
				if err := all[i].resolve(p); err != nil {
					return usage(c, err)
				}
			}
			if _, err := a.podNetwork(pod.KeyOf(p)); err != nil {
				return err
			}
			return a.portForward(c.Context(), pod.KeyOf(p), addresses, all)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringSliceVar(&addresses, "address", []string{"localhost"},
		"addresses to listen on: IP addresses or localhost")
	a.completeFlags(c)
	return c
}

// forward is a local port and the port of the pod to which it is forwarded.
type forward struct {
	local, remote uint16
	// name is the name of the remote port, until resolve finds its number. If same is true, the
	// local port is to be the same as the remote port.
	name string
	same bool
}

// parseForward parses [LOCAL:]REMOTE.
func parseForward(spec string) (forward, error) {
	local, remote, two := strings.Cut(spec, ":")
	if !two {
		local, remote = "", local
	}
	var f forward
	if port, err := strconv.ParseUint(remote, 10, 16); err == nil && port > 0 {
		f.remote = uint16(port)
	} else if len(validation.IsValidPortName(remote)) == 0 {
		f.name = remote
	} else {
		return f, fmt.Errorf("%q: %q is no port", spec, remote)
	}
	if f.same = !two; f.same {
		f.local = f.remote
	} else if local != "" {
		port, err := strconv.ParseUint(local, 10, 16)
		if err != nil {
			return f, fmt.Errorf("%q: %q is no port", spec, local)
		}
		f.local = uint16(port)
	}
	return f, nil
}

// resolve finds the number of a named port in the containers of the pod.
func (f *forward) resolve(p *v1.Pod) error {
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

// portForward listens and forwards connections until ctx ends. It always returns an error.
func (a *app) portForward(ctx context.Context, key pod.Key, addresses []string, all []forward) error {
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
			fmt.Fprintf(a.Out, "Forwarding from %s -> %d\n", l.Addr(), f.remote)
			serving.Go(func() { a.serveForward(ctx, key, l, f.remote) })
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// listenFor listens on the local port at each address. The address localhost stands for 127.0.0.1
// and, if the machine has IPv6, ::1. The returned listeners are open even if there is an error.
func listenFor(addresses []string, f forward) ([]net.Listener, error) {
	var all []net.Listener
	for _, address := range addresses {
		hosts := []string{address}
		if address == "localhost" {
			hosts = []string{"127.0.0.1", "::1"}
		}
		port := f.local
		for i, host := range hosts {
			l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
			if err != nil && i > 0 {
				continue // the machine may have no IPv6
			}
			if err != nil {
				return all, fmt.Errorf("listening on %s: %w", address, err)
			}
			all = append(all, l)
			if tcp, ok := l.Addr().(*net.TCPAddr); ok {
				port = uint16(tcp.Port)
			}
		}
	}
	return all, nil
}

// serveForward accepts and forwards connections until the listener is closed. It returns when all
// connections have ended.
func (a *app) serveForward(ctx context.Context, key pod.Key, l net.Listener, remote uint16) {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		open.Go(func() {
			defer conn.Close()
			if err := a.carry(ctx, key, conn, remote); err != nil && ctx.Err() == nil {
				fmt.Fprintf(a.ErrOut, "error: forwarding to port %d: %v\n", remote, err)
			}
		})
	}
}

// carry connects to the current sandbox of the pod and copies data in both directions.
func (a *app) carry(ctx context.Context, key pod.Key, conn net.Conn, remote uint16) error {
	netns, err := a.podNetwork(key)
	if err != nil {
		return err
	}
	inside, err := dialInside(ctx, netns, remote)
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

// dialInside connects to a port at localhost in the pod's network namespace, or in that of the host
// if netns is empty.
func dialInside(ctx context.Context, netns string, port uint16) (net.Conn, error) {
	var errs []error
	for _, localhost := range []string{"127.0.0.1", "::1"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(localhost), port)
		dial := func() (net.Conn, error) { return network.Dial(ctx, netns, to) }
		if netns == "" {
			dial = func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to.String()) }
		}
		conn, err := dial()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errs[0] // the error for ::1 adds nothing
}

// copyHalf copies data in one direction, then closes the write side of the destination.
func copyHalf(to, from net.Conn) {
	_, _ = io.Copy(to, from) // either side may close the connection
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// podNetwork returns the path of the pod's network namespace, or "" if the pod uses that of the
// host.
func (a *app) podNetwork(key pod.Key) (string, error) {
	p, err := query.ReadPod(a.dirs().Status(key))
	if err != nil {
		return "", err
	}
	c, err := checkpoint.NewStore(a.dirs(), a.log).Get(p.UID)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		return "", err
	}
	store := sandbox.New(sandbox.Options{Dirs: a.dirs(), Log: a.log})
	for i := 0; c != nil && i < len(c.Sandboxes); i++ {
		if s := c.Sandboxes[i]; store.Ready(s) {
			return store.Paths(s).Net, nil
		}
	}
	return "", &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("pod %q is not running", key.Name)}
}
