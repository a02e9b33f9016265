package printers

import (
	"io"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/status/summary"
)

// EventOptions select how events are printed.
type EventOptions struct {
	Format        Format
	NoHeaders     bool
	AllNamespaces bool
	// Watch prints each event as an object of its own, not as a list.
	Watch bool
}

// Events prints events in one format.
type Events struct {
	EventOptions
	table  *Table
	headed bool
}

// NewEvents returns a printer of events.
func NewEvents(out io.Writer, o EventOptions) *Events {
	return &Events{EventOptions: o, table: NewTable(out), headed: o.NoHeaders}
}

// Print prints events. It prints the headers only once.
func (v *Events) Print(all []v1.Event) error {
	if !v.Format.rows() {
		return v.objects(all)
	}
	rows, err := v.rows(all, !v.headed)
	v.headed = true
	if err != nil {
		return err
	}
	return v.table.Print(rows...)
}

// objects prints events as objects or with a template.
func (v *Events) objects(all []v1.Event) error {
	var b []byte
	var err error
	switch {
	case v.Format.isName():
		for _, e := range all {
			b = append(b, "event/"+e.Name+"\n"...)
		}
	case v.Watch:
		for i := range all {
			var one []byte
			if one, err = v.Format.Marshal(&all[i]); err != nil {
				return err
			}
			b = append(b, one...)
		}
	default:
		b, err = v.Format.Marshal(&v1.EventList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"},
			Items:    all,
		})
	}
	if err != nil {
		return err
	}
	_, err = cli.ForTerminal(v.table.out).Write(b)
	return err
}

// rows returns events as rows of a table, after the headers if header is true.
func (v *Events) rows(all []v1.Event, header bool) (rows [][]string, err error) {
	if header && v.Format.custom != nil {
		rows = append(rows, v.Format.headers())
	} else if header {
		rows = append(rows, v.header())
	}
	for i := range all {
		row := v.row(&all[i], time.Now())
		if v.Format.custom != nil {
			if row, err = v.Format.customRow(&all[i]); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (v *Events) header() []string {
	header := []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}
	if v.AllNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	return header
}

func (v *Events) row(e *v1.Event, now time.Time) []string {
	seen := Age(e.LastTimestamp.Time, now)
	if e.Count > 1 {
		seen += " (x" + strconv.Itoa(int(e.Count)) + " over " + Age(e.FirstTimestamp.Time, now) + ")"
	}
	message := e.Message
	if v.Format.kind != "wide" {
		message = summary.OneLine(message)
	}
	row := []string{
		seen,
		e.Type,
		e.Reason,
		strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name,
		strings.ReplaceAll(message, "\n", "; "),
	}
	if v.AllNamespaces {
		row = append([]string{e.Namespace}, row...)
	}
	return row
}
