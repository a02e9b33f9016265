package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// additionalNetwork is an additional network of a pod, as the pod's record has it.
type additionalNetwork struct {
	Conflist     json.RawMessage `json:"conflist"`
	Link         string          `json:"link"`
	Capabilities map[string]any  `json:"capabilities,omitempty"`
}

// additionalNetworks returns the networks that p's annotation names, with their configurations from the
// directory.
func (c *Plugins) additionalNetworks(p *v1.Pod) ([]additionalNetwork, error) {
	wanted, err := pod.Networks(p)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	known := map[string]*libcni.NetworkConfigList{}
	for _, file := range slices.Backward(files) { // of several with one name, the first one applies
		if list, err := readConfiguration(file); err == nil {
			known[list.Name] = list
		}
	}
	var out []additionalNetwork
	for _, n := range wanted {
		list := known[n.Name]
		if list == nil {
			return nil, fmt.Errorf("CNI's network %s is in none of the configurations in %s", n.Name, c.ConfDir)
		}
		a := additionalNetwork{Conflist: list.Bytes, Link: n.Interface, Capabilities: map[string]any{}}
		for capability, value := range map[string]any{"ips": n.IPs, "mac": n.MAC} {
			if capability == "ips" && len(n.IPs) == 0 || capability == "mac" && n.MAC == "" {
				continue
			}
			if !hasCapability(list, capability) {
				return nil, fmt.Errorf(
					"CNI's network %s cannot set the requested %s: none of its plugins has that capability",
					n.Name, capability)
			}
			a.Capabilities[capability] = value
		}
		out = append(out, a)
	}
	return out, nil
}

// addAdditional connects the pod to its additional networks.
func (c *Plugins) addAdditional(ctx context.Context, id string, a attachment) error {
	return a.each(func(list *libcni.NetworkConfigList, of additionalNetwork) error {
		if _, err := c.library(a.BinDirs).AddNetworkList(ctx, list, of.runtime(a, id, a.NetNS)); err != nil {
			return fmt.Errorf("CNI's network %s: %w", list.Name, err)
		}
		return nil
	})
}

// delAdditional disconnects the pod from its additional networks, in reverse order; also from those that
// addAdditional was about to connect when it was interrupted.
func (c *Plugins) delAdditional(ctx context.Context, id, netns string, a attachment) error {
	slices.Reverse(a.Others)
	return a.each(func(list *libcni.NetworkConfigList, of additionalNetwork) error {
		if err := c.library(a.BinDirs).DelNetworkList(ctx, list, of.runtime(a, id, netns)); err != nil {
			return fmt.Errorf("CNI's network %s: %w", list.Name, err)
		}
		return nil
	})
}

func (a attachment) each(do func(*libcni.NetworkConfigList, additionalNetwork) error) error {
	for _, of := range a.Others {
		list, err := libcni.NetworkConfFromBytes(of.Conflist)
		if err != nil {
			return err
		}
		if err := do(list, of); err != nil {
			return err
		}
	}
	return nil
}

func (of additionalNetwork) runtime(a attachment, id, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID:    id,
		NetNS:          netns,
		IfName:         of.Link,
		Args:           a.Args,
		CapabilityArgs: of.Capabilities,
	}
}
