// Package sections keeps the page of benchmarks, each section of which has the results of a measurement of its own.
//
// Begin reading with Write.
package sections

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// The headings of sections.
const (
	Jobs   = "\n\n## Jobs and removal\n"
	Probes = "\n\n## Probes\n"
	Idle   = "\n\n## Idle pods\n"
	Scale  = "\n\n## Scale\n"
	Relist = "\n\n## Full lists\n"
)

// headings are those of the page's sections, in their order. What precedes the first belongs to the
// main measurement.
var headings = []string{Jobs, Probes, Idle, Scale, Relist}

// Write replaces a section of the markdown file and leaves the others unchanged.
func Write(markdown, heading, section string) error {
	text, err := os.ReadFile(markdown)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, sections := split(string(text))
	if before == "" {
		before = "# Benchmarks"
	}
	sections[slices.Index(headings, heading)] = section
	return os.WriteFile(markdown, []byte(before+joined(sections)), 0o644)
}

// Kept returns the sections of the markdown file, which the main measurement leaves unchanged.
func Kept(markdown string) string {
	text, _ := os.ReadFile(markdown) // the file need not exist yet
	_, sections := split(string(text))
	return joined(sections)
}

// split returns what precedes the first section of a page, and the sections without their headings, ""
// if there is none.
func split(page string) (before string, sections []string) {
	sections = make([]string, len(headings))
	for i, heading := range slices.Backward(headings) {
		page, sections[i], _ = strings.Cut(page, heading)
	}
	return strings.TrimRight(page, "\n"), sections
}

func joined(sections []string) string {
	var out strings.Builder
	for i, section := range sections {
		if section != "" {
			out.WriteString(headings[i] + strings.TrimRight(section, "\n"))
		}
	}
	return out.String() + "\n"
}
