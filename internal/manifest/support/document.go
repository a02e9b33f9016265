package support

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

const head = `# Supported fields of a Pod

This page is generated from the table that ` + "`podrun validate`, `serve` and `once`" + ` use. An unsupported field is an
error that names file, line and field; it is never ignored. podrun always accepts a field that is left out, or that has
an equivalent empty value. The table does not list the fields below an unsupported field.

podrun reads documents of the kinds Pod, PodList, List, ConfigMap and Secret (apiVersion v1); any other kind is an error.

| Field | Supported | Remarks |
| --- | --- | --- |
`

const annotationHead = `
## Annotations

podrun keeps annotations unchanged. Only these have a meaning for it; a name that ends in / is a prefix:

| Annotation | Supported | Remarks |
| --- | --- | --- |
`

// Document returns the table as a Markdown document: docs/compat.md.
func Document() []byte {
	var b bytes.Buffer
	b.WriteString(head)
	for _, e := range Entries() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.Field, e.Support, e.Note)
	}
	b.WriteString(annotationHead)
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, annotations[name].support, annotations[name].text())
	}
	return b.Bytes()
}
