// Package yielding is a listener that closes the connection that matters least instead of accepting no more.
package yielding

import (
	"cmp"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"podrun.io/podrun/internal/sys/shortage"
)

// patience is how long a connection stays as it is before it may be closed for others. A client that
// has connected sends its request within that time.
const patience = 20 * time.Millisecond

// Listener is a listener with a limited number of connections, in all and for each client, that
// never stops accepting: it closes the connection that matters least. So clients that connect and
// send nothing, as anybody can, do not keep others away.
type Listener struct {
	net.Listener
	all, each int

	mu          sync.Mutex
	connections map[*connection]bool
}

// usage is what a connection is used for; the lowest is closed first.
type usage int

const (
	unproven usage = iota // no request has been accepted
	idle
	busy
)

// connection is a connection of a Listener.
type connection struct {
	net.Conn
	of     *Listener
	client netip.Prefix
	// The following fields are guarded by the listener's mu.
	usage usage
	since time.Time // of the usage
}

// Waiting returns another kind of listener, which accepts from l while there are fewer than all connections: then its
// clients wait for each other.
func Waiting(l net.Listener, all int) net.Listener {
	return netutil.LimitListener(shortage.Accepting(l), all)
}

// New returns a listener that accepts from l and keeps at most all connections, and each of one client.
func New(l net.Listener, all, each int) *Listener {
	return &Listener{Listener: shortage.Accepting(l), all: all, each: each, connections: map[*connection]bool{}}
}

// Accept implements net.Listener. What is too much since the last call is closed only now, after
// patience: the client of that connection is served meanwhile.
func (l *Listener) Accept() (net.Conn, error) {
	for l.tooMany() {
		time.Sleep(time.Millisecond)
	}
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, of: l, client: clientAt(accepted.RemoteAddr()), since: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connections[c] = true
	return c, nil
}

// tooMany closes at most one connection, and reports whether there are still too many. Of equally
// used ones, it closes one of the client with the most connections, and of these the oldest.
func (l *Listener) tooMany() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[netip.Prefix][]*connection{}
	for c := range l.connections {
		of[c.client] = append(of[c.client], c)
	}
	var candidates []*connection
	if len(l.connections) > l.all {
		candidates = slices.Collect(maps.Keys(l.connections))
	}
	for _, all := range of {
		if len(all) > l.each {
			candidates = all
		}
	}
	if len(candidates) == 0 {
		return false
	}
	least := slices.MinFunc(candidates, func(a, b *connection) int {
		return cmp.Or(cmp.Compare(a.usage, b.usage), cmp.Compare(len(of[b.client]), len(of[a.client])),
			a.since.Compare(b.since))
	})
	if time.Since(least.since) < patience {
		return true
	}
	delete(l.connections, least)
	least.Conn.Close()
	return false // each call of Accept adds only one
}

// clientAt returns the addresses that count as one client: an IPv4 address, an IPv6 network of 64
// bits, or all loopback addresses.
func clientAt(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := min(ip.BitLen(), 64)
	if ip.IsLoopback() {
		ip, bits = netip.IPv6Loopback(), 128
	}
	p, _ := ip.Prefix(bits) // cannot fail: no address has fewer bits
	return p
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.connections, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (c *connection) use(u usage) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.usage, c.since = u, time.Now()
}

type connectionKey struct{}

// WithConnection is the ConnContext of the server, by which InUse finds the connection.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// InUse notes which connections h, which gets accepted requests only, responds to.
func InUse(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.use(busy)
			defer c.use(idle)
		}
		h.ServeHTTP(w, r)
	})
}
