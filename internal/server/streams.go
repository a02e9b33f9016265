package server

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// streams limits the concurrent streaming responses on the TCP address, logs included, so that
	// there are connections left for other requests.
	streams = connections / 2
	// containersOfStream is how many logs that are merged in one response count as one streaming response.
	containersOfStream = 4
	// streamTime is how long a page is updated over one connection; the browser then connects
	// again.
	streamTime = 10 * time.Minute
)

// streamSlots limits the number of streaming responses.
type streamSlots chan struct{}

// begin takes a slot and reports whether there was a free one; if not, it has refused the request.
// end releases the slot. The Unix socket, which only root can use, has no limit.
func (s streamSlots) begin(w http.ResponseWriter, r *http.Request) (end func(), ok bool) {
	if overSocket(r) {
		return func() {}, true
	}
	select {
	case s <- struct{}{}:
		return func() { <-s }, true
	default:
		w.Header().Set("Retry-After", "60")
		w.Header().Set("Connection", "close") // the connection must not be kept open either
		http.Error(w, "too many streaming responses at a time", http.StatusServiceUnavailable)
		return nil, false
	}
}

// overSocket reports that a request came over the Unix socket.
func overSocket(r *http.Request) bool {
	local, known := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return known && local.Network() == "unix"
}

// withStreamTime returns the request's context, which also ends after streamTime.
func withStreamTime(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, leave := untilShutdown(r.Context())
	ctx, stop := context.WithTimeout(ctx, streamTime)
	return ctx, func() { stop(); leave() }
}
