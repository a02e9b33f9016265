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
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"time"

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
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("pod %q was removed", p.Key.Name)
	}
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
	return "", query.PodNotRunning(status)
}

// replaceTime is how long a pod may be missing whose next revision is about to be started.
const replaceTime = 3 * time.Second

// Lost returns an error when the pod has been removed, or the cause of the end of ctx when that ends first.
func (p Pod) Lost(ctx context.Context, r *query.Reader) error {
	var missing time.Time // since when
	return r.OnChange(ctx, p.Dirs.StatusFiles().Dir(), func() (bool, error) {
		_, err := query.ReadPod(p.Dirs.StatusFiles().Pod(p.Key))
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			missing = time.Time{}
		case missing.IsZero():
			missing = time.Now()
		case time.Since(missing) >= replaceTime:
			return false, fmt.Errorf("lost connection to pod: pod %q was removed", p.Key.Name)
		}
		return false, nil
	})
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
