package portmap

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// change is what has changed of the port records.
type change struct {
	// id is whose ports may lead elsewhere than before; "" if it is nobody's. all says that each port may.
	id  string
	all bool
	// anew says that the rules are to be written anew; else those of id are added, if that is possible.
	anew bool
	// ended are the records of pods that have ended.
	ended []Record
}

// publish installs the forwarding rules for all port records.
func (t *Ports) publish(held map[string]Record, c change) error {
	rec, err := t.records.Load()
	if err != nil || rec.Bridge == "" {
		return err // without a bridge there are only ports of the host network
	}
	var all, changed []forwarding
	for holder, h := range held {
		if yields(holder, held) {
			continue
		}
		ports := forwardings(h)
		all = append(all, ports...)
		if holder == c.id {
			changed = ports
		}
	}
	needed, needless := tablesFor(rec, all)
	strange, err := t.records.Strange(needed, needless)
	whole := err == nil && len(strange) == 0
	if c.all || c.anew || !whole || addPorts(rec.Bridge, changed) != nil {
		if c.all || !whole {
			changed = all // the rules of others were missing
		}
		err := publishPorts(rec.Bridge, rec.Subnets(), all)
		if err == nil {
			err = t.records.Installed(needed)
		}
		if err != nil {
			return fmt.Errorf("forwarding host ports with nftables: %w", err)
		}
	}
	var former []forwarding
	for _, h := range c.ended {
		former = append(former, forwardings(h)...)
	}
	if err := t.forget(changed, former); err != nil {
		// The kernel lacks it, and the ports lead where they should, for whoever begins anew.
		if !slices.ContainsFunc([]error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EPERM},
			func(one error) bool { return errors.Is(err, one) }) {
			return err
		}
		t.unforgotten.Do(func() {
			t.records.Log.Warn("flows of UDP and SCTP to host ports go on at the pods that they began with, also when those "+
				"have ended: the kernel does not let podrun end them, as without nf_conntrack_netlink", "err", err)
		})
	}
	local := slices.ContainsFunc(all, forwarding.isLocal)
	if err := routeLocal(rec.Bridge, local); err != nil && local {
		t.unrouted.Do(func() { t.records.Log.Warn("host ports do not answer on 127.0.0.1", "err", err) })
	}
	return nil
}

// yields reports that another pod has the ports that it shares with id.
func yields(id string, held map[string]Record) bool {
	c := held[id]
	for other, h := range held {
		if other == id || !c.shares(h) {
			continue
		}
		first := c.Surge && !h.Surge || c.Surge == h.Surge && other < id
		if h.Sequence > c.Sequence || h.Sequence == c.Sequence && first {
			return true
		}
	}
	return false
}

// isLocal reports whether the port is to answer on the machine's IPv4 loopback.
func (f forwarding) isLocal() bool {
	return f.at == netip.IPv4Unspecified() || f.at.Is4() && f.at.IsLoopback()
}

// forwardings returns the rules for a port record; none if it has no pod address, as with host
// networking.
func forwardings(c Record) []forwarding {
	var out []forwarding
	for _, p := range c.Ports {
		at, err := hostAddr(p)
		if err != nil {
			continue
		}
		for _, to := range []netip.Addr{c.Addr, c.Addr6} {
			here := at
			if p.HostIP == "" && to.Is6() {
				here = netip.IPv6Unspecified()
			}
			if to.IsValid() && here.Is4() == to.Is4() {
				out = append(out, forwarding{
					protocol: protocolNumber(p.Protocol),
					at:       here,
					port:     p.Port,
					to:       netip.AddrPortFrom(to, p.ContainerPort),
				})
			}
		}
	}
	return out
}
