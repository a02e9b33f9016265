package network

import (
	"math"

	"github.com/vishvananda/netlink"
)

// What is sent at once beyond the rate: what goes in 20 ms, but no more than that, and two packets at least.
const (
	burstsPerSecond = 50
	largestBurst    = 4 << 20
	smallestBurst   = 2 * 1514 // two packets where it is not known how large they are
	// queuesPerSecond is for how long packets wait before they are dropped: 100 ms.
	queuesPerSecond = 10
)

// slow lets a link send so many bits a second, and no more; with 0 it is left alone.
func slow(handle *netlink.Handle, link netlink.Link, bits int64) error {
	if bits == 0 {
		return nil
	}
	rate := uint64(bits+7) / 8
	burst := burstOf(rate, 2*uint64(link.Attrs().MTU))
	return handle.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Buffer:     netlink.Xmittime(rate, uint32(burst)),
		Limit:      uint32(min(rate/queuesPerSecond+burst, math.MaxUint32)),
	})
}

// burstOf is what may be sent at once at a rate, in bytes.
func burstOf(rate, least uint64) uint64 { return max(min(rate/burstsPerSecond, largestBurst), least) }
