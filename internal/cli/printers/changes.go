package printers

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/status/summary"
)

// changeJSON is a change in the JSON output of diff.
type changeJSON struct {
	Action    manifest.Action `json:"action"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Manifest  string          `json:"manifest"`
	Fields    []string        `json:"fields,omitempty"`
	Volumes   []string        `json:"volumes,omitempty"`
	Restarts  []string        `json:"restarts,omitempty"`
	Why       string          `json:"why,omitempty"`
}

// Changes prints what serve would change, and warnings about the manifests. It returns an error with
// the exit code of podrun diff.
func Changes(streams cli.Streams, changes []manifest.Change, desired manifest.Desired, inJSON bool) error {
	for _, w := range desired.Warnings {
		cli.Warnf(streams.ErrOut, "%v", w.Err)
	}
	if err := printChanges(streams.Out, changes, inJSON); err != nil {
		return err
	}
	if len(desired.Problems) > 0 {
		var text []string
		for _, p := range desired.Problems {
			text = append(text, p.Err.Error())
		}
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s", strings.Join(text, "\n"))}
	}
	if slices.ContainsFunc(changes, func(c manifest.Change) bool { return c.Action != manifest.Keep }) {
		return &cli.Error{Code: cli.ExitFailed}
	}
	return nil
}

// printChanges prints one line per change, or JSON.
func printChanges(out io.Writer, changes []manifest.Change, inJSON bool) error {
	rows := []changeJSON{}
	for _, c := range changes {
		row := changeJSON{
			Action:    c.Action,
			Namespace: c.Key.Namespace,
			Name:      c.Key.Name,
			Manifest:  c.Origin.Path,
			Fields:    c.Fields,
			Volumes:   c.Volumes,
			Restarts:  c.Restarts,
		}
		if c.Why != nil {
			row.Why = c.Why.Error()
		}
		rows = append(rows, row)
	}
	if !inJSON {
		for _, row := range rows {
			fmt.Fprintln(out, summary.PlainLine(row.String()))
		}
		return nil
	}
	b, err := json.MarshalIndent(struct {
		Changes []changeJSON `json:"changes"`
	}{rows}, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintln(cli.ForTerminal(out), string(b))
	return nil
}

// String returns the change as one line of text.
func (c changeJSON) String() string {
	sign := map[manifest.Action]string{
		manifest.Create:  "+",
		manifest.Replace: "~",
		manifest.Update:  "~",
		manifest.Keep:    "=",
		manifest.Remove:  "-",
	}[c.Action]
	line := fmt.Sprintf("%s %s %s/%s", sign, c.Action, c.Namespace, c.Name)
	if c.Manifest != "" {
		line += " (" + c.Manifest + ")"
	}
	if what := c.what(); len(what) > 0 {
		line += ": " + strings.Join(what, ", ")
	}
	switch {
	case c.Action != manifest.Update:
	case len(c.Restarts) == 0:
		line += " (in place)"
	case len(c.Restarts) == 1:
		line += " (restarts container " + c.Restarts[0] + ")"
	default:
		line += " (restarts containers " + strings.Join(c.Restarts, ", ") + ")"
	}
	if first, more, _ := strings.Cut(c.Why, "\n"); first != "" {
		line += ": " + first
		if more != "" {
			line += " …"
		}
	}
	return line
}

// what names what changes in the pod.
func (c changeJSON) what() []string {
	what := slices.Clone(c.Fields)
	for _, name := range c.Volumes {
		what = append(what, "files of volume "+name)
	}
	return what
}
