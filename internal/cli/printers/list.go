package printers

import (
	"fmt"
	"io"

	"podrun.io/podrun/internal/cli"
)

// List prints things that are not pods, such as volumes and plugins, in one format.
type List[T any] struct {
	Format    Format
	NoHeaders bool
	// Header has the names of the columns, and Row the cells of a thing.
	Header []string
	Row    func(T) []string
	// Name returns type and name of a thing, such as volume/data.
	Name func(T) string
}

// Print prints all things once.
func (l List[T]) Print(out io.Writer, all []T) error {
	switch {
	case l.Format.rows():
		rows, err := l.rows(all)
		if err != nil {
			return err
		}
		return Rows(out, rows...)
	case l.Format.isName():
		for _, one := range all {
			if _, err := fmt.Fprintln(out, l.Name(one)); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := l.Format.Marshal(map[string]any{"items": all})
	if err == nil {
		_, err = cli.ForTerminal(out).Write(text)
	}
	return err
}

// rows returns the rows of a table, after the header unless NoHeaders is set.
func (l List[T]) rows(all []T) ([][]string, error) {
	header := l.Header
	if l.Format.custom != nil {
		header = l.Format.headers()
	}
	var rows [][]string
	if !l.NoHeaders {
		rows = append(rows, header)
	}
	for _, one := range all {
		row := l.Row(one)
		if l.Format.custom != nil {
			var err error
			if row, err = l.Format.customRow(one); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
