package printers

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/changes"
	"podrun.io/podrun/internal/manifest/edits"
	"podrun.io/podrun/internal/status/summary"
)

// changeJSON is a change in the JSON output of diff.
type changeJSON struct {
	Action    changes.Action `json:"action"`
	Kind      string         `json:"kind,omitempty"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Manifest  string         `json:"manifest"`
	Fields    []string       `json:"fields,omitempty"`
	Edits     []edits.Edit   `json:"edits,omitempty"`
	MoreEdits int            `json:"moreEdits,omitempty"`
	Volumes   []string       `json:"volumes,omitempty"`
	Restarts  []string       `json:"restarts,omitempty"`
	NewRun    bool           `json:"newRun,omitempty"`
	Why       string         `json:"why,omitempty"`
}

// ChangesOptions select how changes are printed.
type ChangesOptions struct {
	JSON bool
	// DesiredOnly leaves out the pods that the manifests do not name, which exist.
	DesiredOnly bool
}

// Changes prints what serve would change, and warnings about the manifests. It returns an error with
// the exit code of podrun diff.
func Changes(streams cli.Streams, all []changes.Change, desired manifest.Desired, o ChangesOptions) error {
	if o.DesiredOnly {
		all = changes.OfDesired(all, desired)
	}
	for _, w := range desired.Warnings {
		cli.Warnf(streams.ErrOut, "%v", w.Err)
	}
	if err := printChanges(streams.Out, all, o.JSON); err != nil {
		return &cli.Error{Code: cli.ExitUsage, Err: err} // cli.ExitFailed says that there are changes
	}
	if len(desired.Problems) > 0 {
		var text []string
		for _, p := range desired.Problems {
			text = append(text, p.Err.Error())
		}
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s", strings.Join(text, "\n"))}
	}
	if slices.ContainsFunc(all, func(c changes.Change) bool { return c.Action != changes.Keep }) {
		return &cli.Error{Code: cli.ExitFailed}
	}
	return nil
}

// printChanges prints one line per change, or JSON.
func printChanges(out io.Writer, all []changes.Change, inJSON bool) error {
	rows := []changeJSON{}
	for _, c := range all {
		row := changeJSON{
			Action:    c.Action,
			Kind:      c.Kind,
			Namespace: c.Key.Namespace,
			Name:      c.Key.Name,
			Manifest:  c.Origin.Path,
			Edits:     c.Edits,
			MoreEdits: c.More,
			Volumes:   c.Volumes,
			Restarts:  c.Restarts,
			NewRun:    c.NewRun,
		}
		for _, e := range c.Edits {
			row.Fields = append(row.Fields, e.Field)
		}
		if c.Why != nil {
			row.Why = c.Why.Error()
		}
		rows = append(rows, row)
	}
	if !inJSON {
		checked := cli.NewChecked(out)
		for _, row := range rows {
			fmt.Fprintln(checked, summary.PlainLine(row.String()))
			for _, line := range row.details() {
				fmt.Fprintln(checked, "    "+summary.PlainLine(line))
			}
		}
		return checked.Err()
	}
	b, err := json.MarshalIndent(struct {
		Changes []changeJSON `json:"changes"`
	}{rows}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cli.ForTerminal(out), string(b))
	return err
}

// String returns the change as one line of text.
func (c changeJSON) String() string {
	sign := map[changes.Action]string{
		changes.Create:  "+",
		changes.Replace: "~",
		changes.Update:  "~",
		changes.Keep:    "=",
		changes.Remove:  "-",
	}[c.Action]
	what := ""
	if c.Kind != "" {
		what = c.Kind + " "
	}
	line := fmt.Sprintf("%s %s %s%s/%s", sign, c.Action, what, c.Namespace, c.Name)
	if c.Manifest != "" {
		line += " (" + c.Manifest + ")"
	}
	if effect := c.effect(); effect != "" {
		line += ": " + effect
	}
	if first, more, _ := strings.Cut(c.Why, "\n"); first != "" {
		line += ": " + first
		if more != "" {
			line += " …"
		}
	}
	return line
}

// effect says what happens to the containers of the pod.
func (c changeJSON) effect() string {
	switch {
	case c.NewRun:
		return "a new run of its Job"
	case c.Action == changes.Replace:
		return "a new pod; all containers start anew"
	case c.Action != changes.Update:
		return ""
	case c.Kind == "CronJob":
		return "for later Jobs"
	case c.Kind != "":
		return "of its own"
	case len(c.Restarts) == 0:
		return "in place"
	case len(c.Restarts) == 1:
		return "restarts container " + c.Restarts[0]
	}
	return "restarts containers " + strings.Join(c.Restarts, ", ")
}

// details are lines with what changes in the pod.
func (c changeJSON) details() []string {
	var lines []string
	for _, e := range c.Edits {
		lines = append(lines, e.Field+": "+OrNone(e.Old)+" → "+OrNone(e.New))
	}
	if c.MoreEdits > 0 {
		lines = append(lines, Count(c.MoreEdits, "more field"))
	}
	for _, name := range c.Volumes {
		lines = append(lines, "files of volume "+name)
	}
	return lines
}
