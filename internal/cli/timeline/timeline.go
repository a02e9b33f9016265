// Package timeline is podrun timeline: it asks the serve that runs what the last starts of pods spent their time on,
// and prints it. Begin reading with Show.
package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/timeline"
)

// Help is the help of the command.
const Help = "timeline shows what the last start of pods spent its time on: pulls, unpacking, sandboxes (namespaces), their\n" +
	"networks, volumes, starts, runs until their end, probes until the container was ready, back-offs and waiting.\n" +
	"Each is a bar; those of the critical path, what the end waited for, are made of #.\n\n" +
	"It shows what came after the last minute in which nothing went on: a boot, a roll-out or a restart. With a POD\n" +
	"it is the last start of that pod. serve keeps this in memory: it must run, and what came before its own start is\n" +
	"not known. podrun once --timeline writes the same for a run of once."

// Options are the options of Show.
type Options struct {
	// Named returns the pod of a namespace that a name means.
	Named func(namespace, name string) (*v1.Pod, error)
	// Socket is where serve listens, and Namespace that of the pod.
	Socket, Namespace string
	// Output is "", json or svg.
	Output string
}

// Check returns an error for options that cannot be used.
func (o Options) Check() error {
	if !slices.Contains([]string{"", "json", "svg"}, o.Output) {
		return fmt.Errorf("-o %q: must be json or svg", o.Output)
	}
	return nil
}

// Show prints the last run of all pods, or of the pod that names has.
func Show(ctx context.Context, out io.Writer, o Options, names []string) error {
	which := url.Values{}
	for _, name := range names {
		one, err := o.Named(o.Namespace, name)
		if err != nil {
			return err
		}
		which.Set("namespace", one.Namespace)
		which.Set("pod", one.Name)
	}
	all, err := ask(ctx, o.Socket, which)
	if err != nil {
		return err
	}
	now := time.Now()
	all = timeline.LastRun(all, now)
	timeline.Path(all, now)
	text := []byte(timeline.Text(all, now))
	switch {
	case o.Output == "json":
		text, err = timeline.JSON(all)
	case o.Output == "svg":
		text = timeline.SVG(all, now)
	case len(all) == 0:
		text = []byte("nothing was started since serve began\n")
	}
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// maxTime is how long serve may take to answer.
const maxTime = 10 * time.Second

// ask asks the serve that listens on a socket for the spans.
func ask(ctx context.Context, socket string, of url.Values) ([]timeline.Span, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://podrun/api/v1/timeline?"+of.Encode(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "dial" {
		return nil, &cli.Error{
			Code: cli.ExitFailed, Err: fmt.Errorf("no podrun serve answers at %s: %w", socket, refused.Err),
			Hint: "only a running podrun serve knows its timeline; podrun once --timeline FILE writes that of a run",
		}
	}
	if err != nil {
		return nil, fmt.Errorf("asking podrun serve: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, &cli.Error{
			Code: cli.ExitFailed, Err: fmt.Errorf("podrun serve answers %s", answer.Status),
			Hint: "a serve of an older version has no timeline: restart it",
		}
	}
	var got timeline.Document
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
		return nil, fmt.Errorf("reading what podrun serve answers: %w", err)
	}
	return got.Items, nil
}
