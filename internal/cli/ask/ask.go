// Package ask asks the podrun serve that runs, over its socket, for what only it knows.
//
// Begin reading at Serve.
package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"podrun.io/podrun/internal/cli"
)

// maxTime is how long serve may take to answer.
const maxTime = 10 * time.Second

// NoServeError is the error of a socket at which nobody answers.
type NoServeError struct {
	Socket string
	Err    error
}

func (e *NoServeError) Error() string {
	return fmt.Sprintf("no podrun serve answers at %s: %v", e.Socket, e.Err)
}
func (e *NoServeError) Unwrap() error { return e.Err }

// Serve asks the serve that listens on a socket for a path with its query, and decodes the JSON that it answers into
// answer. It returns a NoServeError if none runs.
func Serve(ctx context.Context, socket, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://podrun"+path, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "dial" {
		return &NoServeError{Socket: socket, Err: refused.Err}
	}
	if err != nil {
		return fmt.Errorf("asking podrun serve: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return &cli.Error{
			Code: cli.ExitFailed, Err: fmt.Errorf("podrun serve answers %s", response.Status),
			Hint: "a serve of an older version does not have this: restart it",
		}
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("reading what podrun serve answers: %w", err)
	}
	return nil
}
