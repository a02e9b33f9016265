package describe

import (
	"encoding/json"
	"fmt"
	"time"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/workload/revisions"
)

// HistoryHelp is the help of podrun history, and HistoryExample its example.
const (
	HistoryHelp = "history lists the last revisions of the manifest of a pod, or of the template of a workload, the oldest\n" +
		"first, with what became of each: Healthy, RolledBack, Failed if there was none to go back to, Superseded\n" +
		"if it was edited before it was healthy, or Progressing as long as serve waits for it. * is the revision\n" +
		"that runs. serve records revisions of pods with the annotation podrun.io/rollback, and with --rollback those\n" +
		"of all pods."
	HistoryExample = "  podrun history web\n  podrun history deployment/web\n  podrun history web -o json"
)

// HistoryOptions say whose revisions are shown.
type HistoryOptions struct {
	Namespace string
	// Output is "" for a table, or json.
	Output string
}

// shown is a history as it is printed: without the manifests, which may have secrets.
type shown struct {
	// Current is the ID of the revision that runs.
	Current string `json:"current"`
	// RolledBack is the ID of the revision that the manifest has, if another one runs in its place.
	RolledBack string              `json:"rolledBack,omitempty"`
	Revisions  []revisions.Outcome `json:"revisions"`
}

// History prints the revisions of the pod or workload that args name: POD, TYPE/NAME or TYPE NAME.
func History(r *query.Reader, streams cli.Streams, o HistoryOptions, args []string) error {
	if o.Output != "" && o.Output != "json" {
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("-o %q: must be json", o.Output)}
	}
	_, h, err := r.Revisions(o.Namespace, args)
	if err != nil {
		return err
	}
	s := shownOf(h)
	if o.Output == "json" {
		text, err := json.MarshalIndent(s, "", "    ")
		if err == nil {
			_, err = fmt.Fprintln(streams.Out, string(text))
		}
		return err
	}
	now := time.Now()
	rows := [][]string{{"CURRENT", "REVISION", "RESULT", "AGE", "REASON"}}
	for i, one := range s.Revisions {
		at, current := one.Ended, ""
		if one.Result == revisions.Progressing {
			at = one.Began
		}
		last := true
		for _, later := range s.Revisions[i+1:] {
			last = last && later.ID != one.ID
		}
		if last && one.ID == s.Current {
			current = "*"
		}
		rows = append(rows, []string{
			current, revisions.Short(one.ID), string(one.Result), printers.Age(at, now), one.Reason,
		})
	}
	return printers.NewTable(streams.Out).Print(rows...)
}

// shownOf returns what is shown of a history.
func shownOf(h *revisions.History) shown {
	s := shown{RolledBack: h.RolledBack}
	s.Current, s.Revisions = h.Outcomes()
	return s
}
