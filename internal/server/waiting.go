package server

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"
)

// listenAgain is how often an address that is not available is tried again.
const listenAgain = time.Second

// waiting listens at an address as soon as that is available: the machine may not have it before its network is there,
// or another program may use it. Neither keeps the pods of the machine from running.
type waiting struct {
	open func(context.Context) (net.Listener, error)
	log  *slog.Logger
	ctx  context.Context
	end  context.CancelFunc

	mu sync.Mutex
	l  net.Listener // nil: not yet
}

// newWaiting returns a listener that listens with open, which has failed with this error before.
func newWaiting(open func(context.Context) (net.Listener, error), failed error, log *slog.Logger) *waiting {
	log.Error("HTTP is not served at an address; it is tried again", "err", failed)
	w := &waiting{open: open, log: log}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// Accept implements net.Listener.
func (w *waiting) Accept() (net.Conn, error) {
	for {
		if l := w.listener(); l != nil {
			return l.Accept()
		}
		select {
		case <-w.ctx.Done():
			return nil, net.ErrClosed
		case <-time.After(listenAgain):
		}
	}
}

// listener returns the listener, nil as long as it cannot be opened.
func (w *waiting) listener() net.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.l != nil || w.ctx.Err() != nil {
		return w.l
	}
	l, err := w.open(w.ctx)
	if err != nil {
		return nil
	}
	w.l = l
	w.log.Info("serving HTTP", "listen", l.Addr().String())
	return l
}

// Close implements net.Listener.
func (w *waiting) Close() error {
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.l == nil {
		return nil
	}
	return w.l.Close()
}

// Addr implements net.Listener. It returns nil as long as the address is not available.
func (w *waiting) Addr() net.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.l == nil {
		return nil
	}
	return w.l.Addr()
}
