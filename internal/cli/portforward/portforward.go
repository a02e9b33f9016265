// Package portforward connects to ports inside pods, for the command of that name: it finds the
// network namespace of a pod and connects to localhost in it.
//
// The package listens nowhere: package cli/stream forwards what comes in. Entering the namespace is
// network.Dial.
//
// Begin reading at Pod.
package portforward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sandbox"
)

// Pod is the pod whose ports are connected to, in its current sandbox.
type Pod struct {
	Dirs layout.Dirs
	Log  *slog.Logger
	Key  pod.Key
}

// NetworkNamespace returns the path of the pod's network namespace, or "" if the pod uses that of
// the host.
func (p Pod) NetworkNamespace() (string, error) {
	status, err := query.ReadPod(p.Dirs.StatusFiles().Pod(p.Key))
	if err != nil {
		return "", err
	}
	c, err := checkpoint.NewStore(p.Dirs, p.Log).Get(status.UID)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		return "", err
	}
	store := sandbox.New(sandbox.Options{Dirs: p.Dirs, Log: p.Log})
	for i := 0; c != nil && i < len(c.Sandboxes); i++ {
		if s := c.Sandboxes[i]; store.Ready(s) {
			return store.Paths(s).Net, nil
		}
	}
	return "", fmt.Errorf("pod %q is not running", p.Key.Name)
}

// Dial connects to a port at localhost in the pod.
func (p Pod) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	netns, err := p.NetworkNamespace()
	if err != nil {
		return nil, err
	}
	return dial(ctx, netns, port)
}

// dial connects to a port at localhost in the pod's network namespace, or in that of the host
// if netns is empty.
func dial(ctx context.Context, netns string, port uint16) (net.Conn, error) {
	var errs []error
	for _, localhost := range []string{"127.0.0.1", "::1"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(localhost), port)
		connect := func() (net.Conn, error) { return network.Dial(ctx, netns, to) }
		if netns == "" {
			connect = func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to.String()) }
		}
		conn, err := connect()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errs[0] // the error for ::1 adds nothing
}
