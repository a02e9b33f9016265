// Package cni connects pods by the CNI plugins of a user's configuration: it reads the
// configuration, runs the plugins, and keeps a record of what they were called for until they have
// released it.
//
// It does not choose between CNI and podrun's bridge, reserve host ports or repeat failed releases:
// package network does. Package sandbox creates the network namespaces.
//
// Start reading at Plugins.Setup; Plugins.Teardown and Plugins.Sweep are in release.go.
package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types "github.com/containernetworking/cni/pkg/types/100"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Plugins connects pods by the CNI plugins of a user's configuration. It writes a record for each
// pod that it connects, with the configuration that was used, so that the same plugins release what
// they set up even if the configuration changes. Records outlive a reboot, because the plugins' own
// records do.
type Plugins struct {
	Options
	// AddLimit and DelLimit bound the time that all plugins together may need for one ID.
	AddLimit, DelLimit time.Duration

	exec *pluginExec
}

// Options configure Plugins.
type Options struct {
	// ConfDir is the directory of the configuration; "" means none. BinDirs have the plugins.
	ConfDir string
	BinDirs []string
	// Records is the directory with a file per ID, and a directory per locked ID.
	Records string
	Cache   string                 // cache directory of CNI's library
	Boot    func() (string, error) // returns the kernel's boot ID
	Log     *slog.Logger
}

// Config is the configuration of a network: a list of plugins.
type Config = libcni.NetworkConfigList

// New returns the plugins. It reads nothing yet.
func New(o Options) *Plugins {
	return &Plugins{Options: o, AddLimit: addLimit, DelLimit: delLimit, exec: &pluginExec{log: o.Log}}
}

// attachment is the record of one pod's connection. It is written before the plugins are called.
type attachment struct {
	Conflist json.RawMessage `json:"conflist"`
	BinDirs  []string        `json:"binDirs"`
	NetNS    string          `json:"netns"`
	// Boot is the kernel's boot ID when the plugins were called. It is empty in records of a former
	// version of podrun.
	Boot         string         `json:"boot,omitempty"`
	Args         [][2]string    `json:"args"`
	Capabilities map[string]any `json:"capabilities,omitempty"`
	// Others are the additional networks.
	Others []additionalNetwork `json:"others,omitempty"`
	// Failed means that the plugins of the first network failed to connect the pod, so that it has
	// no additional networks yet.
	Failed bool `json:"failed,omitempty"`
}

// portMapping is a host port in the form of the portMappings capability.
type portMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// bandwidth is the value of the capability of that name: rates in bits a second, bursts in bits.
type bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

func bandwidthOf(limits pod.Bandwidth) bandwidth {
	// The plugin requires a burst, in bits, that is a whole number of bytes.
	burst := func(rate int64) uint64 {
		if rate == 0 {
			return 0
		}
		return 8 * netdev.BurstOf(uint64(rate)/8, netdev.SmallestBurst)
	}
	return bandwidth{
		IngressRate: uint64(limits.Ingress), IngressBurst: burst(limits.Ingress),
		EgressRate: uint64(limits.Egress), EgressBurst: burst(limits.Egress),
	}
}

// Configuration returns the first configuration of the directory by file name, as containerd does;
// nil if there is none.
func (c *Plugins) Configuration() (*Config, error) {
	files, err := c.files()
	if err != nil || len(files) == 0 {
		return nil, err
	}
	list, err := readConfiguration(files[0])
	if err != nil {
		return nil, fmt.Errorf("CNI's configuration %s cannot be used: %w", files[0], err)
	}
	return list, nil
}

// files returns the paths of the directory's configurations, sorted.
func (c *Plugins) files() ([]string, error) {
	if c.ConfDir == "" {
		return nil, nil
	}
	files, err := libcni.ConfFiles(c.ConfDir, []string{".conflist", ".conf", ".json"})
	if err != nil {
		return nil, fmt.Errorf("reading CNI's configuration: %w", err)
	}
	files = slices.DeleteFunc(files, isForeign)
	slices.Sort(files)
	return files, nil
}

// isForeign reports whether podman or nerdctl keeps the file for its own networks. All of them
// share the directory, and these files are not meant for pods.
func isForeign(file string) bool {
	name := filepath.Base(file)
	return strings.HasPrefix(name, "87-podman") || strings.HasPrefix(name, "nerdctl-")
}

func readConfiguration(file string) (*libcni.NetworkConfigList, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(file, ".conflist") {
		list, err := libcni.NetworkConfFromBytes(text)
		if err == nil && len(list.Plugins) == 0 {
			err = errors.New("it names no plugin")
		}
		return list, err
	}
	one, err := libcni.NetworkPluginConfFromBytes(text)
	if err != nil {
		return nil, err
	}
	if one.Network.Type == "" {
		return nil, errors.New(`it names no plugin; a list of plugins must have a name that ends in ".conflist"`)
	}
	// The old form: containerd accepts it, and many machines still have it.
	return libcni.ConfListFromConf(one) //nolint:staticcheck // see above
}

// Setup connects p by the configuration's plugins and returns its addresses, IPv4 first. Concurrent
// calls for the same ID wait for each other; calls for different IDs do not.
func (c *Plugins) Setup(
	ctx context.Context, id, netns string, p *v1.Pod, list *Config,
) ([]netip.Addr, error) {
	a := attachment{Conflist: list.Bytes, BinDirs: c.BinDirs, NetNS: netns, Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.Namespace}, {"K8S_POD_NAME", p.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", id}, {"K8S_POD_UID", string(p.UID)},
	}}
	var err error
	if a.Boot, err = c.Boot(); err != nil {
		return nil, err
	}
	if a.Capabilities, err = capabilities(p, list); err != nil {
		return nil, err
	}
	if a.Others, err = c.additionalNetworks(p); err != nil {
		return nil, err
	}
	if err := c.installed(list, a); err != nil {
		return nil, err
	}
	unlock, err := c.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return c.add(ctx, id, list, a)
}

// add writes the record and calls the plugins to connect the pod. The caller holds id's lock.
func (c *Plugins) add(
	ctx context.Context, id string, list *libcni.NetworkConfigList, a attachment,
) ([]netip.Addr, error) {
	ctx, cancel := withLimit(ctx, c.AddLimit)
	defer cancel()
	if err := c.saveRecord(id, a); err != nil {
		return nil, err
	}
	result, err := c.library(a.BinDirs).AddNetworkList(ctx, list, a.runtime(id, a.NetNS))
	if err != nil {
		a.Failed = true
		return nil, errors.Join(fmt.Errorf("CNI's network %s: %w", list.Name, err), c.saveRecord(id, a))
	}
	got, err := types.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("CNI's network %s: %w", list.Name, err)
	}
	if err := c.addAdditional(ctx, id, a); err != nil {
		return nil, err
	}
	return addressesOf(got, list.Name)
}

// saveRecord writes a as the record of id.
func (c *Plugins) saveRecord(id string, a attachment) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Records, 0o700); err != nil {
		return err
	}
	// The plugins' own records may be on another disk, and survive a loss of power.
	return sys.WriteDurable(c.RecordPath(id), text, 0o600)
}

// installed returns an error if a plugin of a's networks, the first of which is list, is not
// installed. Before ADD it is called before the record is written: plugins that were never called
// need no release.
func (c *Plugins) installed(list *libcni.NetworkConfigList, a attachment) error {
	find := func(of *libcni.NetworkConfigList, _ additionalNetwork) error {
		for _, p := range of.Plugins {
			if _, err := invoke.FindInPath(p.Network.Type, a.BinDirs); err != nil {
				return fmt.Errorf("CNI's network %s: %w", of.Name, err)
			}
		}
		return nil
	}
	return errors.Join(find(list, additionalNetwork{}), a.each(find))
}

// hasCapability reports whether one of the network's plugins has the capability.
func hasCapability(list *libcni.NetworkConfigList, capability string) bool {
	return slices.ContainsFunc(list.Plugins, func(c *libcni.PluginConfig) bool {
		return c.Network.Capabilities[capability]
	})
}

// capabilities returns the capability arguments for p: its host ports and bandwidth limits. One
// that no plugin supports is an error.
func capabilities(p *v1.Pod, list *libcni.NetworkConfigList) (map[string]any, error) {
	out := map[string]any{}
	if ports := portMappings(p); len(ports) > 0 {
		if !hasCapability(list, "portMappings") {
			return nil, fmt.Errorf("CNI's network %s cannot have host ports: "+
				"none of its plugins has the capability portMappings, as portmap has", list.Name)
		}
		out["portMappings"] = ports
	}
	if limits := pod.BandwidthOf(p); limits != (pod.Bandwidth{}) {
		if !hasCapability(list, "bandwidth") {
			return nil, fmt.Errorf("CNI's network %s cannot be limited: "+
				"none of its plugins has the capability bandwidth, as the plugin bandwidth has", list.Name)
		}
		out["bandwidth"] = bandwidthOf(limits)
	}
	return out, nil
}

// addressesOf returns the pod's addresses in the result of an ADD, IPv4 first. No address is an
// error.
func addressesOf(r *types.Result, network string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil && *i < len(r.Interfaces) && *i >= 0 && r.Interfaces[*i].Sandbox == "" {
			continue // an address of the host's side
		}
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addrs = append(addrs, addr.Unmap())
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("CNI's network %s gave the pod no address", network)
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return addrs, nil
}

func (c *Plugins) library(binDirs []string) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(binDirs, c.Cache, c.exec)
}

const recordSuffix = ".json"

// RecordPath returns the file with the record of id.
func (c *Plugins) RecordPath(id string) string { return filepath.Join(c.Records, id+recordSuffix) }

func (a attachment) runtime(id, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID:    id,
		NetNS:          netns,
		IfName:         netdev.PodLink,
		Args:           a.Args,
		CapabilityArgs: a.Capabilities,
	}
}

func portMappings(p *v1.Pod) []portMapping {
	var out []portMapping
	for _, port := range pod.HostPorts(p) {
		out = append(out, portMapping{
			HostPort: port.Port, ContainerPort: port.ContainerPort,
			Protocol: strings.ToLower(string(port.Protocol)), HostIP: port.HostIP,
		})
	}
	return out
}
