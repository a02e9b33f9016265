package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// identity is what distinguishes this network from those of other podruns on the machine.
type identity struct {
	run  string // run directory
	root string // podrun's root directory
}

// alias returns the link alias of this network's bridge. It identifies the bridge after the run
// directory with its record was deleted. It includes the identity of the root directory, because a
// podrun in a container with the host's network may have directories of the same names. It is empty
// if there is no root directory.
func (n identity) alias() string {
	var root unix.Stat_t
	if err := unix.Stat(n.root, &root); err != nil {
		return ""
	}
	return fmt.Sprintf("podrun %s %d:%d", n.run, root.Dev, root.Ino)
}

// hardwareAddr returns the hardware address of this network's bridge. Like the alias it identifies
// the bridge, but from its creation on: the kernel accepts an alias only for an existing link.
func (n identity) hardwareAddr() net.HardwareAddr {
	sum := sha256.Sum256([]byte(n.run + n.alias()))
	addr := net.HardwareAddr(sum[:6])
	addr[0] = addr[0]&^0x01 | 0x02 // unicast, locally administered
	return addr
}

// portName returns the name of the host's link for id. It depends on the run directory too, because
// two podruns may run the same pod side by side.
func (n identity) portName(id string) string {
	sum := sha256.Sum256([]byte(n.run + "\x00" + id))
	return "pr" + hex.EncodeToString(sum[:5])
}
