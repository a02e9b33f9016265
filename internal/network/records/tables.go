package records

import (
	"maps"
	"slices"

	"github.com/google/nftables"

	"podrun.io/podrun/internal/network/nft"
)

// Strange returns the names of those of needed that are not there as this network has installed them, but missing or
// made by another program, and of those of needless that are there.
func (d *Dir) Strange(needed, needless []*nftables.Table) (names []string, err error) {
	there, err := nft.Handles(slices.Concat(needed, needless))
	if err != nil {
		return nil, err
	}
	installed, err := d.Tables()
	if err != nil {
		return nil, err
	}
	for _, n := range needed {
		if name := nft.TableName(n); there[name] == 0 || there[name] != installed[name] {
			names = append(names, name)
		}
	}
	for _, n := range needless {
		if name := nft.TableName(n); there[name] != 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// Tables returns the kernel's numbers of the tables that the network has installed, by their names.
func (d *Dir) Tables() (map[string]uint64, error) {
	s, err := d.load()
	return s.Tables, err
}

// Installed records that tables are this network's, which has just installed them. The caller holds the lock.
func (d *Dir) Installed(tables []*nftables.Table) error {
	numbers, err := nft.Handles(tables)
	if err != nil {
		return err
	}
	s, err := d.load()
	if err != nil {
		return err
	}
	before := maps.Clone(s.Tables)
	if s.Tables == nil {
		s.Tables = map[string]uint64{}
	}
	maps.Copy(s.Tables, numbers)
	maps.DeleteFunc(s.Tables, func(_ string, number uint64) bool { return number == 0 })
	if maps.Equal(before, s.Tables) {
		return nil
	}
	return d.save(s)
}
