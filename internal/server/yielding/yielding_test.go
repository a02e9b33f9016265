package yielding

import (
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestYielding: which connection is closed for another one.
func TestYielding(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	long := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name   string
		have   string // a client and its usage: unproven, idle or busy; the oldest first
		closed int
	}{
		{"few", "a- b+ c!", -1},
		{"too many of all: what has shown nothing", "a+ b! c- d-", 2},
		{"of the client that has most of these", "a- b- b- c+", 1},
		{"too many of one: what it used least", "a! a+ a+ b-", 1},
		{"all are in use: the oldest", "a! b! c! d!", 0},
		{"both: of the one with too many", "b- a! a! a!", 1},
	} {
		l := New(listener, 3, 2)
		var all []*connection
		for i, text := range strings.Fields(c.have) {
			one, other := net.Pipe()
			defer other.Close()
			x := &connection{
				Conn: one, of: l, usage: usage(strings.IndexByte("-+!", text[1])), since: long.Add(time.Duration(i) * time.Second),
				client: clientAt(&net.TCPAddr{IP: net.IPv4(192, 0, 2, text[0])}),
			}
			all = append(all, x)
			l.connections[x] = true
		}
		if l.tooMany() {
			t.Errorf("%s: it waits", c.name)
		}
		for i, x := range all {
			if l.connections[x] != (i != c.closed) {
				t.Errorf("%s: connection %d: %v", c.name, i, l.connections[x])
			}
		}
	}
}

func TestClientAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true}, {"192.0.2.1:1", "192.0.2.2:1", false}, {"192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"[2001:db8::1]:1", "[2001:db8::2:1]:1", true}, {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		{"[fe80::1%lo]:1", "[fe80::2]:1", true},
		{"127.0.0.1:1", "127.1.2.3:1", true}, {"127.0.0.1:1", "[::1]:1", true}, {"[::1]:1", "[::2]:1", false},
	} {
		var of [2]net.Addr
		for i, text := range []string{c.a, c.b} {
			of[i] = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))
		}
		if (clientAt(of[0]) == clientAt(of[1])) != c.same {
			t.Errorf("%s and %s: %v, %v", c.a, c.b, clientAt(of[0]), clientAt(of[1]))
		}
	}
}

// short is a listener that fails once as the kernel does when it watches no more files for this user.
type short struct {
	net.Listener
	over bool
}

func (s *short) Accept() (net.Conn, error) {
	if !s.over {
		s.over = true
		return nil, &net.OpError{Op: "accept", Err: syscall.ENOSPC}
	}
	c, _ := net.Pipe()
	return c, nil
}

// TestListenersOutliveAShortage: neither kind of listener fails.
func TestListenersOutliveAShortage(t *testing.T) {
	for name, l := range map[string]net.Listener{"yielding": New(&short{}, 1, 1), "waiting": Waiting(&short{}, 1)} {
		if _, err := l.Accept(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
