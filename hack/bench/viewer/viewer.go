// Package viewer keeps a page of podrun open, as a browser does.
package viewer

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Open opens the page with the path over the socket of serve and reads what it is sent until end is called, which
// returns an error if the page was closed before.
func Open(ctx context.Context, socket, path string) (end func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	response, err := client.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body.Close()
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body) // until end
	}()
	return func() error {
		defer cancel()
		select {
		case <-closed:
			return fmt.Errorf("%s was closed", path)
		default:
			return nil
		}
	}, nil
}
