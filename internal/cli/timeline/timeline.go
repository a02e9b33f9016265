// Package timeline is podrun timeline: it asks the serve that runs what the last starts of pods spent their time on,
// and prints it. Begin reading with Show.
package timeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/ask"
	"podrun.io/podrun/internal/timeline"
)

// Help is the help of the command.
const Help = "timeline shows what the last start of pods spent its time on: pulls, unpacking, sandboxes (namespaces), their\n" +
	"networks, volumes, starts, runs until their end, probes until the container was ready, back-offs and waiting.\n" +
	"Each is a bar; those of the critical path, what the end waited for, are made of #. Lines are as wide as the\n" +
	"terminal, or 80 characters; -o json has whole texts, and the waiting that the drawings leave out because nothing\n" +
	"is known of it.\n\n" +
	"It shows what came after the last minute in which nothing went on but waiting and retries: a boot, a roll-out or\n" +
	"a restart. Of a container that is tried again and again, the drawings have the tries before its first back-off, and\n" +
	"what came after the last one. With a POD it is the last start of that pod. serve keeps this in memory: it must run, and\n" +
	"what came before its own start is not known. podrun once --timeline writes the same for a run of once."

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
	var recorded timeline.Document
	err := ask.Serve(ctx, o.Socket, "/api/v1/timeline?"+which.Encode(), &recorded)
	if errors.As(err, new(*ask.NoServeError)) {
		return &cli.Error{
			Code: cli.ExitFailed, Err: err,
			Hint: "only a running podrun serve knows its timeline; podrun once --timeline FILE writes that of a run",
		}
	}
	if err != nil {
		return err
	}
	now := time.Now()
	all := timeline.LastRun(recorded.Items, now)
	if o.Output != "json" {
		all = timeline.WithoutRetries(all, now)
	}
	timeline.Path(all, now)
	text := []byte(timeline.Text(all, now, widthOf(out)))
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

// widthOf returns how many characters a line of what is written to out may have.
func widthOf(out io.Writer) int {
	if size := cli.SizeOf(out); size != nil {
		width, _ := size()
		return width
	}
	return 80
}
