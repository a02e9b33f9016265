package support

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

const head = `# What of a Pod podrun supports

Generated from the table that ` + "`podrun validate`, `serve` and `once`" + ` use. A field that is not supported is an
error that names file, line and field; it is never ignored. Leaving a field out, or giving it an empty
value that means the same, is always accepted. What lies under a field that is not supported is not listed.

Documents of kind Pod, PodList, List, ConfigMap and Secret (apiVersion v1) are read; any other kind is an error.

| Field | Supported | Remarks |
| --- | --- | --- |
`

const annotationHead = `
## Annotations

Annotations are kept as they are and mean nothing to podrun, but for these, of which a name ending in / is a prefix:

| Annotation | Supported | Remarks |
| --- | --- | --- |
`

// Document is the table for people, in Markdown.
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
