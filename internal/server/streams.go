package server

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// streams bounds the answers without end that are given beside the socket, so that there are connections left
	// for others.
	streams = connections / 2
	// streamTime is how long a page is told anew; a browser asks again then.
	streamTime = 10 * time.Minute
)

// streamSlots counts answers without end.
type streamSlots chan struct{}

// begin reports that there is room for one more, after refusing a client that there is none for; end gives the room
// back. On the socket, which is root's, there is always room.
func (s streamSlots) begin(w http.ResponseWriter, r *http.Request) (end func(), ok bool) {
	if local, known := r.Context().Value(http.LocalAddrContextKey).(net.Addr); known && local.Network() == "unix" {
		return func() {}, true
	}
	select {
	case s <- struct{}{}:
		return func() { <-s }, true
	default:
		w.Header().Set("Retry-After", "60")
		w.Header().Set("Connection", "close") // it is not to be held on to, either
		http.Error(w, "too many answers without end at a time", http.StatusServiceUnavailable)
		return nil, false
	}
}

// forAWhile is a request's context that ends with streamTime, too.
func forAWhile(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, leave := untilLeaving(r.Context())
	ctx, stop := context.WithTimeout(ctx, streamTime)
	return ctx, func() { stop(); leave() }
}
