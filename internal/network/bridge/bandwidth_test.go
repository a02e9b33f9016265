package bridge

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"podrun.io/podrun/internal/network/nettest"
)

// bulk sends bytes from one namespace to another and returns how long that takes.
func bulk(t *testing.T, from, to netns.NsHandle, addr string, bytes int64) time.Duration {
	t.Helper()
	var listener net.Listener
	nettest.In(t, to, func() (err error) { listener, err = net.Listen("tcp", net.JoinHostPort(addr, "0")); return err })
	defer listener.Close()
	go func() {
		_ = nettest.Try(from, func() error {
			c, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(make([]byte, bytes))
			return err
		})
	}()
	c, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if got, err := io.Copy(io.Discard, c); got != bytes || err != nil {
		t.Fatalf("%d bytes came, %v", got, err)
	}
	return time.Since(began)
}

func TestBandwidth(t *testing.T) {
	const bytes, least = 3 << 20, 200 * time.Millisecond // 314 ms at 80 Mbit/s, less the burst
	for name, c := range map[string]struct {
		ingress, egress string
		outside, inside bool
	}{
		"what comes": {ingress: "80M", outside: true},
		"what goes":  {egress: "80M", inside: true},
		"both":       {ingress: "80M", egress: "80M", outside: true, inside: true},
	} {
		host, a := nettest.NewNS(t), nettest.NewNS(t)
		run := t.TempDir()
		br := newBridge(t, run)
		var addr string
		nettest.In(t, host, func() error {
			addrs, err := br.Setup(context.Background(), "a", nettest.Path(a), nettest.Limited(c.ingress, c.egress))
			if err == nil {
				addr = addrs[0].String()
			}
			return err
		})
		for ns, wanted := range map[netns.NsHandle]bool{host: c.outside, a: c.inside} {
			got := nettest.Rates(t, ns)
			if wanted != (len(got) == 1) || wanted && got[0] != 10_000_000 {
				t.Errorf("%s: rates %v", name, got)
			}
		}
		rec, err := br.records.Load()
		if err != nil {
			t.Fatal(err)
		}
		if took := bulk(t, host, a, addr, bytes); c.outside && took < least {
			t.Errorf("%s: 3 MiB came to the pod in %s", name, took)
		}
		if took := bulk(t, a, host, gatewayOf(rec.Subnet).String(), bytes); c.inside && took < least {
			t.Errorf("%s: 3 MiB went from the pod in %s", name, took)
		}
		nettest.Teardown(t, host, br, "a")
		nettest.Bare(t, host, run)
	}
}
