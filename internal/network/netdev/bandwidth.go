package netdev

import (
	"math"

	"github.com/vishvananda/netlink"
)

// A burst is what may be sent at once beyond the rate: what the rate allows in 20 ms, but at most
// 4 MiB and at least two packets. In bytes, except burstsPerSecond.
const (
	burstsPerSecond = 50
	largestBurst    = 4 << 20
	// SmallestBurst is the least burst where the MTU is not known: two packets of 1,514 bytes.
	SmallestBurst = 2 * 1514
	// queuesPerSecond is how many full queues are sent in a second: packets wait for 100 ms at most
	// and are dropped beyond that.
	queuesPerSecond = 10
)

// LimitRate limits what a link sends to the given number of bits a second, with a token bucket filter. 0
// means no limit: the link is not changed.
func LimitRate(handle *netlink.Handle, link netlink.Link, bits int64) error {
	if bits == 0 {
		return nil
	}
	rate := uint64(bits+7) / 8
	burst := BurstOf(rate, 2*uint64(link.Attrs().MTU))
	return handle.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index,
			Handle:    netlink.MakeHandle(1, 0),
			Parent:    netlink.HANDLE_ROOT,
		},
		Rate:   rate,
		Buffer: netlink.Xmittime(rate, uint32(burst)),
		Limit:  uint32(min(rate/queuesPerSecond+burst, math.MaxUint32)),
	})
}

// BurstOf returns the burst for a rate in bytes a second, in bytes.
func BurstOf(rate, least uint64) uint64 { return max(min(rate/burstsPerSecond, largestBurst), least) }
