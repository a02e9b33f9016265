package portmap

import (
	"github.com/google/nftables"

	"podrun.io/podrun/internal/network/nft"
)

// Tables returns the nftables tables that the recorded host ports need. The caller holds the lock.
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
