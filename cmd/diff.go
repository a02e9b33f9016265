package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest"
)

func (a *app) diffCommand() *cobra.Command {
	var s sourceFlags
	var output string
	c := &cobra.Command{
		Use:   "diff",
		Short: "Show what serve would change",
		Long: "diff reads the manifests as serve would and prints for each pod whether serve would create,\n" +
			"replace, keep or remove it. serve need not be running. diff changes nothing. For a pod that would\n" +
			"be replaced, it names fields that differ.\n\n" +
			"Exit code: 0 serve would change nothing; 1 serve would change pods; 2 a source cannot be read or\n" +
			"used.",
		Example: "  # show what a new set of manifests would change on this machine\n" +
			"  podrun diff --manifests new/\n\n" +
			"  podrun diff --manifest-url https://pods.example/node1.yaml -o json",
		Args: argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage(c, fmt.Errorf("-o %q: must be text or json", output))
			}
			o := a.agentOptions()
			if err := s.options(c, &o); err != nil {
				return usage(c, err)
			}
			o.Log = slog.New(slog.DiscardHandler) // problems are in the result
			changes, desired, err := agent.Diff(c.Context(), o)
			switch {
			case errors.Is(err, agent.ErrUsage):
				return usage(c, err)
			case err != nil && c.Context().Err() == nil:
				return &cli.Error{Code: cli.ExitUsage, Err: err}
			case err != nil:
				return err
			}
			a.warn(desired.Warnings)
			return a.showChanges(changes, desired.Problems, output)
		},
	}
	s.add(c.Flags())
	fromEnvironment(c.Flags())
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return c
}

// changeJSON is a change in the JSON output of diff.
type changeJSON struct {
	Action    manifest.Action `json:"action"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Manifest  string          `json:"manifest"`
	Fields    []string        `json:"fields,omitempty"`
	Why       string          `json:"why,omitempty"`
}

func (a *app) showChanges(changes []manifest.Change, problems []manifest.Problem, output string) error {
	rows, differs := []changeJSON{}, false
	for _, c := range changes {
		row := changeJSON{
			Action:    c.Action,
			Namespace: c.Key.Namespace,
			Name:      c.Key.Name,
			Manifest:  c.Origin.Path,
			Fields:    c.Fields,
		}
		if c.Why != nil {
			row.Why = c.Why.Error()
		}
		rows = append(rows, row)
		differs = differs || c.Action != manifest.Keep
	}
	if output == "json" {
		b, err := json.MarshalIndent(struct {
			Changes []changeJSON `json:"changes"`
		}{rows}, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(cli.ForTerminal(a.Out), string(b))
	} else {
		for _, row := range rows {
			fmt.Fprintln(a.Out, row)
		}
	}
	if len(problems) > 0 {
		var text []string
		for _, p := range problems {
			text = append(text, p.Err.Error())
		}
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s", strings.Join(text, "\n"))}
	}
	if differs {
		return &cli.Error{Code: cli.ExitFailed}
	}
	return nil
}

// String returns the change as one line of text.
func (c changeJSON) String() string {
	sign := map[manifest.Action]string{
		manifest.Create:  "+",
		manifest.Replace: "~",
		manifest.Keep:    "=",
		manifest.Remove:  "-",
	}[c.Action]
	line := fmt.Sprintf("%s %s %s/%s", sign, c.Action, c.Namespace, c.Name)
	if c.Manifest != "" {
		line += " (" + c.Manifest + ")"
	}
	if len(c.Fields) > 0 {
		line += ": " + strings.Join(c.Fields, ", ")
	}
	if first, more, _ := strings.Cut(c.Why, "\n"); first != "" {
		line += ": " + first
		if more != "" {
			line += " …"
		}
	}
	return line
}
