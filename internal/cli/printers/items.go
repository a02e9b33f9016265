package printers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"podrun.io/podrun/internal/cli"
)

// Item is an object of any kind to print.
type Item struct {
	// Resource is the type, with its API group if it has one, as in job.batch/NAME.
	Resource        string
	Namespace, Name string
	// Row are the cells of the standard table.
	Row []string
	// Object is printed as JSON, as YAML, or with a template.
	Object any
}

// Items prints objects in one format.
type Items struct {
	Format        Format
	NoHeaders     bool
	AllNamespaces bool
	// Single prints the only item as an object, not as a list.
	Single bool
	// Prefix puts the resource before the names in tables.
	Prefix bool
	Header []string
}

// Print prints items once.
func (v Items) Print(out io.Writer, items []Item) error {
	switch {
	case v.Format.rows():
		rows, err := v.rowsOf(items)
		if err != nil {
			return err
		}
		return Rows(out, rows...)
	case v.Format.isName():
		for _, item := range items {
			if _, err := fmt.Fprintf(out, "%s/%s\n", item.Resource, item.Name); err != nil {
				return err
			}
		}
		return nil
	}
	objects := []any{}
	for _, item := range items {
		objects = append(objects, item.Object)
	}
	var all any = map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
	if v.Single {
		all = objects[0]
	}
	text, err := v.Format.Marshal(all)
	if err == nil {
		_, err = cli.ForTerminal(out).Write(text)
	}
	return err
}

// rowsOf returns items as rows of a table, after the headers unless NoHeaders is set.
func (v Items) rowsOf(items []Item) ([][]string, error) {
	var rows [][]string
	lead := func(namespace string, row []string) []string {
		if v.AllNamespaces && v.Format.custom == nil {
			return append([]string{namespace}, row...)
		}
		return row
	}
	header := v.Header
	if v.Format.custom != nil {
		header = v.Format.headers()
	}
	if !v.NoHeaders {
		rows = append(rows, lead("NAMESPACE", header))
	}
	for _, item := range items {
		row := item.Row
		if v.Prefix {
			row = append([]string{item.Resource + "/" + row[0]}, row[1:]...)
		}
		if v.Format.custom != nil {
			var err error
			if row, err = v.Format.customRow(item.Object); err != nil {
				return nil, err
			}
		}
		rows = append(rows, lead(item.Namespace, row))
	}
	return rows, nil
}

// ItemChanges prints items of one kind again whenever they have changed.
type ItemChanges struct {
	Items
	table   *Table
	printed map[string]printedItem
}

type printedItem struct {
	item Item
	text []byte
}

// NewItemChanges returns an ItemChanges that has printed nothing yet.
func NewItemChanges(out io.Writer, as Items) *ItemChanges {
	return &ItemChanges{Items: as, table: NewTable(out), printed: map[string]printedItem{}}
}

// Print prints the items that differ from those that it printed before and, as kubectl, those that are gone.
func (c *ItemChanges) Print(items []Item) error {
	now := map[string]bool{}
	var changed []Item
	for _, item := range items {
		key := item.Resource + "/" + item.Namespace + "/" + item.Name
		now[key] = true
		text, err := json.Marshal(item.Object)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, c.printed[key].text) {
			c.printed[key] = printedItem{item, text}
			changed = append(changed, item)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.printed)) {
		if !now[key] {
			changed = append(changed, c.printed[key].item)
			delete(c.printed, key)
		}
	}
	if c.Format.rows() {
		rows, err := c.rowsOf(changed)
		if err != nil {
			return err
		}
		c.NoHeaders = true
		return c.table.Print(rows...)
	}
	for _, item := range changed {
		one := c.Items
		one.Single = true
		if err := one.Print(c.table.out, []Item{item}); err != nil {
			return err
		}
	}
	return nil
}
