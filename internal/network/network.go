// Package network connects pods to a network: by a Linux bridge of podrun's own or, where a user's
// CNI configuration says so, by CNI plugins.
//
// It chooses between package bridge and package cni, repeats failed releases, and answers what else
// is asked of the machine's network: HostAddress, and Dial for port-forward. It owns no link and no rule
// itself. Host ports are reserved by package bridge, also for pods of CNI, with the records of
// package portmap. Network namespaces are created and removed by package sandbox.
//
// Start reading at Network: Setup connects a pod, Teardown releases it, SweepLost releases what a
// crash left behind.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/bridge"
	"podrun.io/podrun/internal/network/cni"
	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/portmap"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Options configure a Network.
type Options struct {
	Dirs layout.Dirs
	Log  *slog.Logger
	// Keep leaves podrun's own bridge in place when its last pod is removed, so that the next pod does
	// not wait for a new one. Close removes it.
	Keep bool
	// Open lets packets from other links through to any port of the pods on podrun's own bridge.
	Open bool
	// ConfDir is the directory of a user's CNI configuration; "" means none. BinDirs have the
	// plugins.
	ConfDir string
	BinDirs []string
}

// Network connects pods: by a user's CNI configuration if there is one, else by podrun's own
// bridge. The configuration is read at each pod's start. A pod is released by the means that
// connected it, even if the configuration has changed since. Its methods may be called
// concurrently.
type Network struct {
	bridge  *bridge.Bridge
	plugins *cni.Plugins
	retries retries
	log     *slog.Logger
}

// PortInUseError reports that another pod or a process of the machine has a host port.
type PortInUseError = portmap.PortInUseError

// New returns the network. It changes nothing yet.
func New(o Options) *Network { return newOfBoot(o, sync.OnceValues(sys.BootID)) }

// newOfBoot is New with another source of the kernel's boot ID.
func newOfBoot(o Options, boot func() (string, error)) *Network {
	return &Network{
		bridge: bridge.New(bridge.Options{Dirs: o.Dirs, Log: o.Log, Keep: o.Keep, Open: o.Open, Boot: boot}),
		plugins: cni.New(cni.Options{
			ConfDir: o.ConfDir, BinDirs: o.BinDirs,
			Records: o.Dirs.Networks().CNI(), Cache: o.Dirs.Networks().CNICache(),
			Boot: boot, Log: o.Log,
		}),
		log: o.Log,
	}
}

// Setup connects p to the network by the namespace at the path netns and returns its addresses,
// IPv4 first. With netns "", for a pod in the host's network, it only reserves the host ports. See
// bridge.Bridge.Setup for errors.
func (n *Network) Setup(ctx context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error) {
	if netns == "" {
		return n.bridge.Setup(ctx, id, netns, p)
	}
	config, err := n.plugins.Configuration()
	if err != nil {
		return nil, err
	}
	if config == nil {
		if additional, err := pod.Networks(p); err != nil || len(additional) > 0 {
			return nil, errors.Join(err, fmt.Errorf(
				"connecting the pod's network: the annotation %s needs CNI configurations in --cni-conf-dir",
				pod.AnnotationNetworks))
		}
		return n.bridge.Setup(ctx, id, netns, p)
	}
	addrs, err := n.connectByCNI(ctx, id, netns, p, config)
	if err != nil {
		return nil, fmt.Errorf("connecting the pod's network: %w", err)
	}
	return addrs, nil
}

// connectByCNI connects p by CNI plugins. Host ports belong to the machine whoever forwards them, so they
// are reserved as with podrun's own bridge.
func (n *Network) connectByCNI(
	ctx context.Context, id, path string, p *v1.Pod, config *cni.Config,
) ([]netip.Addr, error) {
	c := portmap.RecordOf(p)
	if err := n.bridge.Reserve(ctx, id, c); err != nil {
		return nil, err
	}
	for _, port := range c.Ports {
		if err := portmap.Probe(port); err != nil {
			return nil, err
		}
	}
	if err := netdev.LoopbackUp(path); err != nil {
		return nil, err
	}
	return n.plugins.Setup(ctx, id, path, p, config)
}

// SharesPorts reports that pods which are connected now may share host ports while they are updated: podrun's own
// bridge forwards them.
func (n *Network) SharesPorts() bool {
	config, err := n.plugins.Configuration()
	return err == nil && config == nil
}

// Yield gives the host ports of id to another pod that shares them, if there is one.
func (n *Network) Yield(ctx context.Context, id string) error { return n.bridge.Yield(ctx, id) }

// Repair restores podrun's own rules; see bridge.Bridge.Repair.
func (n *Network) Repair() error { return n.bridge.Repair() }

// Watch restores podrun's own rules whenever other programs remove them; see bridge.Bridge.Watch.
func (n *Network) Watch(ctx context.Context) error { return n.bridge.Watch(ctx) }

// Close removes podrun's own bridge if no pod has an address or a host port in it.
func (n *Network) Close() error { return n.bridge.Close() }
