package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// report counts the verdicts, and tells the differences that are meant from others.
type report struct {
	manifests, bothTake, bothRefuse, unsupported int
	// used counts the manifests that show a meant difference, by its place in the table, and names one.
	used    []int
	example []string
	rest    []string
	lines   int
}

func newReport() *report {
	return &report{used: make([]int, len(meant)), example: make([]string, len(meant))}
}

// excuse returns the place in the table of what explains a difference, or -1.
func excuse(d difference) int {
	for i, m := range meant {
		if m.by == d.By && m.field.MatchString(d.Field) && m.message.MatchString(d.Message) {
			return i
		}
	}
	return -1
}

func (r *report) unexplained(found []difference) bool {
	for _, d := range found {
		if excuse(d) < 0 {
			return true
		}
	}
	return false
}

func (r *report) add(m manifest, podrun, kube verdict, found []difference) {
	r.manifests++
	refused := false
	for _, e := range podrun.Errors {
		refused = refused || e.Refused
	}
	switch {
	case len(podrun.Errors) == 0 && len(kube.Errors) == 0:
		r.bothTake++
	case len(podrun.Errors) > 0 && len(kube.Errors) > 0:
		r.bothRefuse++
	case refused:
		r.unsupported++
	}
	for _, d := range found {
		i := excuse(d)
		if i < 0 {
			r.rest = append(r.rest, fmt.Sprintf("%s\n    %s", m.Name, d))
			continue
		}
		r.used[i]++
		if r.example[i] == "" {
			r.example[i] = m.Name
		}
	}
}

// stale are the lines of the table that nothing showed.
func (r *report) stale() []string {
	var lines []string
	for i, n := range r.used {
		if n == 0 {
			lines = append(lines, fmt.Sprintf("%s: %s: %s", meant[i].by, meant[i].field, meant[i].message))
		}
	}
	return lines
}

func (r *report) print(out io.Writer) {
	for _, line := range r.rest {
		fmt.Fprintln(out, line)
	}
	for i, m := range meant {
		fmt.Fprintf(out, "%6d  meant: %s\n", r.used[i], m.what)
	}
	fmt.Fprintf(out, "%6d  manifests\n%6d  taken by both, and the same pod\n%6d  refused by both, for the same fields\n%6d  refused by podrun alone, as not supported\n",
		r.manifests, r.bothTake, r.bothRefuse, r.unsupported)
	fmt.Fprintf(out, "%6d  differences that are not meant\n", len(r.rest))
}

func (r *report) err() error {
	if len(r.rest) > 0 {
		return fmt.Errorf("%d verdicts differ; mend podrun, or give a reason in oracle/meant.go", len(r.rest))
	}
	if stale := r.stale(); len(stale) > 0 {
		return fmt.Errorf("nothing differs as oracle/meant.go says:\n%s", strings.Join(stale, "\n"))
	}
	return nil
}

// document is the table for people. It has no counts: they change with every field that podrun learns.
func (r *report) document() []byte {
	var b bytes.Buffer
	b.WriteString(docHead)
	for i, m := range meant {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.what, m.why, cell(r.example[i]))
	}
	return b.Bytes()
}

func cell(name string) string {
	if name == "" {
		return ""
	}
	return "`" + strings.NewReplacer("|", `\|`, "`", "'", "\n", " ").Replace(name) + "`"
}

const docHead = "# podrun's verdict and Kubernetes'\n\nTODO\n"
