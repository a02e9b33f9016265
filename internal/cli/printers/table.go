package printers

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/status/summary"
)

// Table prints rows with aligned columns. Columns never become narrower, so that rows printed later
// stay aligned.
type Table struct {
	out    io.Writer
	widths []int
	// fit is the width of the terminal, at which the last column is cut off; 0 means no limit.
	fit int
	// paint has functions that colour the cells of a column, by its index. The header is not
	// coloured.
	paint   map[int]func(string) string
	started bool
}

// NewTable returns a table on out that fits the width of the terminal, if out is one.
func NewTable(out io.Writer) *Table {
	t := &Table{out: out}
	if f := cli.TerminalOf(out); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			t.fit = width
		}
	}
	return t
}

// Rows prints the rows of a table that is not cut off at the width of the terminal.
func Rows(out io.Writer, rows ...[]string) error { return (&Table{out: out}).Print(rows...) }

// Print prints rows. Three spaces separate the columns; the last column is not padded.
func (t *Table) Print(rows ...[]string) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = summary.Plain(cell)
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		t.row(&b, row)
		t.started = true
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

func (t *Table) row(b *strings.Builder, row []string) {
	used := 0
	for len(row) > 0 && row[len(row)-1] == "" {
		row = row[:len(row)-1] // no trailing spaces
	}
	for i, cell := range row {
		last := i == len(row)-1
		if last && i == len(t.widths)-1 && t.fit > 0 {
			cell = cut(cell, max(t.fit-used, minColumn))
		}
		pad := t.widths[i] + 3 - utf8.RuneCountInString(cell)
		used += t.widths[i] + 3
		if paint := t.paint[i]; paint != nil && t.started {
			cell = paint(cell)
		}
		b.WriteString(cell)
		if !last {
			b.WriteString(strings.Repeat(" ", pad))
		}
	}
	b.WriteByte('\n')
}

// leastColumn is the minimum width of the last column, even on a terminal that is too narrow.
const minColumn = 16

// cut shortens text to n characters, the last of which is an ellipsis.
func cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:n-1]), " ") + "…"
}

// OrNone returns s, or <none> if it is empty.
func OrNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

// Age returns the time from from to now as kubectl prints it.
func Age(from, now time.Time) string {
	if from.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(from))
}

// Count returns a number of things, such as "2 pods".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
