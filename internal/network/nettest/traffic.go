package nettest

import (
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// ServeTCP answers every connection to the port in ns with word and who it saw.
func ServeTCP(t testing.TB, ns netns.NsHandle, at, word string) {
	t.Helper()
	var l net.Listener
	In(t, ns, func() (err error) { l, err = net.Listen("tcp4", at); return err })
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s", word, c.RemoteAddr().(*net.TCPAddr).IP)
			c.Close()
		}
	}()
}

// Ask connects from ns and returns the answer.
func Ask(ns netns.NsHandle, network, addr string) (answer string, err error) {
	err = Try(ns, func() error {
		c, err := net.DialTimeout(network, addr, 2*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if network == "udp" {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
		}
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		answer = string(buf[:n])
		return err
	})
	return answer, err
}

// Rates are those of the token buckets on the links of a namespace, in bytes a second.
func Rates(t *testing.T, ns netns.NsHandle) (out []uint64) {
	t.Helper()
	In(t, ns, func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			qdiscs, err := netlink.QdiscList(link)
			if err != nil {
				return err
			}
			for _, q := range qdiscs {
				if tbf, ok := q.(*netlink.Tbf); ok {
					out = append(out, tbf.Rate)
				}
			}
		}
		return err
	})
	return out
}

// NeedIPTables skips the test on a machine without iptables.
func NeedIPTables(t testing.TB, host netns.NsHandle) {
	t.Helper()
	if err := Try(host, exec.Command("iptables-nft", "-S").Run); err != nil {
		t.Skipf("needs iptables-nft: %v", err)
	}
}
