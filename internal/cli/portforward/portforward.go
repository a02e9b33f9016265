// Package portforward connects to ports inside pods, for the command of that name: it finds the
// network namespace of a pod and connects to localhost in it.
//
// The package listens nowhere: package cli/stream forwards what comes in. Entering the namespace is
// network.Dial.
//
// Begin reading at Dial.
package portforward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/sandbox"
)

// NetworkNamespace returns the path of the pod's network namespace, or "" if the pod uses that of
// the host.
func NetworkNamespace(dirs layout.Dirs, log *slog.Logger, p *v1.Pod) (string, error) {
	c, err := checkpoint.NewStore(dirs, log).Get(p.UID)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		return "", err
	}
	store := sandbox.New(sandbox.Options{Dirs: dirs, Log: log})
	for i := 0; c != nil && i < len(c.Sandboxes); i++ {
		if s := c.Sandboxes[i]; store.Ready(s) {
			return store.Paths(s).Net, nil
		}
	}
	return "", fmt.Errorf("pod %q is not running", p.Name)
}

// Dial connects to a port at localhost in the pod's network namespace, or in that of the host
// if netns is empty.
func Dial(ctx context.Context, netns string, port uint16) (net.Conn, error) {
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
