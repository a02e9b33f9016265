package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// AnnotationNetworks lists the pod's additional networks, in the format of the Kubernetes Network
// Plumbing Working Group.
const AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"

// Network is an additional network of a pod.
type Network struct {
	// Name is the name of a CNI configuration on this node.
	Name string `json:"name"`
	// Namespace is the namespace of the object that describes the network in a cluster; a node
	// ignores it.
	Namespace string `json:"namespace,omitempty"`
	// Interface is the name of the network interface in the pod.
	Interface string `json:"interface,omitempty"`
	// IPs and MAC are the addresses that the pod requests there; empty means any.
	IPs []string `json:"ips,omitempty"`
	MAC string   `json:"mac,omitempty"`
}

// Networks returns the pod's additional networks from its annotation: names separated by commas,
// each NAME, NAMESPACE/NAME or NAME@INTERFACE, or a JSON list. An interface without a name gets
// net1, net2, … by its position. It returns an error if the annotation is malformed or an interface
// name is used twice.
func Networks(p *v1.Pod) ([]Network, error) {
	text := strings.TrimSpace(p.Annotations[AnnotationNetworks])
	if text == "" {
		return nil, nil
	}
	var all []Network
	if strings.HasPrefix(text, "[") {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&all); err != nil {
			return nil, fmt.Errorf("must be a list of networks in JSON: %w", err)
		}
		if d.More() {
			return nil, errors.New("must be a list of networks in JSON, and nothing more")
		}
	} else {
		for _, item := range strings.Split(text, ",") {
			name, link, _ := strings.Cut(strings.TrimSpace(item), "@")
			if namespace, rest, ok := strings.Cut(name, "/"); ok {
				all = append(all, Network{Name: rest, Namespace: namespace, Interface: link})
				continue
			}
			all = append(all, Network{Name: name, Interface: link})
		}
	}
	used := map[string]bool{"lo": true, "eth0": true}
	for i := range all {
		n := &all[i]
		if n.Interface == "" {
			n.Interface = "net" + strconv.Itoa(i+1)
		}
		if err := n.verify(used); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// verify checks the network and adds its interface to those that are used.
func (n *Network) verify(used map[string]bool) error {
	const longest = 15 // IFNAMSIZ of the kernel, without the final 0
	switch {
	case n.Name == "" || strings.ContainsAny(n.Name, "/@ \t\n"):
		return fmt.Errorf("%q cannot be a network's name", n.Name)
	case len(n.Interface) > longest || n.Interface == "." || n.Interface == ".." ||
		strings.ContainsAny(n.Interface, "/: \t\n"):
		return fmt.Errorf("%q cannot be a link's name", n.Interface)
	case used[n.Interface]:
		return fmt.Errorf("the link %s is the pod's already", n.Interface)
	}
	used[n.Interface] = true
	for _, ip := range n.IPs {
		if _, err := netip.ParseAddr(ip); err == nil {
			continue
		}
		if _, err := netip.ParsePrefix(ip); err != nil {
			return fmt.Errorf("%q is not an IP address", ip)
		}
	}
	if n.MAC != "" && !isMAC(n.MAC) {
		return fmt.Errorf("%q is not a link's address, as 02:00:00:00:00:01", n.MAC)
	}
	return nil
}

func isMAC(text string) bool {
	const bytes = 6
	parts := strings.Split(text, ":")
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 16, 8); err != nil || len(part) != 2 {
			return false
		}
	}
	return len(parts) == bytes
}
