package portmap

import (
	"slices"

	"github.com/google/nftables"

	"podrun.io/podrun/internal/network/nft"
)

// Tables returns the nftables tables that the recorded host ports need. Without the lock, some may not
// be there yet.
func (t *Ports) Tables(bridge string) ([]*nftables.Table, error) {
	held, err := t.portRecords()
	if err != nil {
		return nil, err
	}
	needed := map[nft.Family]bool{}
	for _, c := range held {
		for _, f := range forwardings(c) {
			needed[nft.FamilyOf(f.to.Addr())] = true
		}
	}
	var all []*nftables.Table
	for f := range needed {
		all = append(all, &nftables.Table{Family: f.Table, Name: Table(bridge)})
	}
	return all, nil
}

// hasTables reports that the tables are there that the ports need.
func hasTables(bridge string, ports []forwarding) bool {
	c, err := nftables.New()
	if err != nil {
		return false
	}
	for _, f := range nft.Families() {
		if !slices.ContainsFunc(ports, func(p forwarding) bool { return nft.FamilyOf(p.to.Addr()) == f }) {
			continue
		}
		if _, err := c.ListTableOfFamily(Table(bridge), f.Table); err != nil {
			return false
		}
	}
	return true
}
