package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The measures of the text, in characters.
const (
	minWidth = 60
	// beside is what a line has beside its bar and its text: the duration, and what separates them.
	beside = 13
	// maxLines is how many lines the text of a span has at most.
	maxLines = 4
)

// Text returns the spans as lines with bars of text, which have at most so many characters as width, or minWidth. # is
// the critical path, - what is not on it.
func Text(all []Span, now time.Time, width int) string {
	if len(all) == 0 {
		return ""
	}
	begin, whole := bounds(all, now)
	all = speaking(all)
	texts, longest := make([]string, len(all)), 0
	for i, s := range all {
		texts[i] = plain(s.text())
		longest = max(longest, utf8.RuneCountInString(texts[i]))
	}
	width = max(width, minWidth)
	longest = min(longest, (width-beside)*5/9) // the bars have the rest
	columns := width - beside - longest
	var out strings.Builder
	fmt.Fprintf(&out, "%s from %s; #: the critical path\n", rounded(whole), begin.UTC().Format(time.RFC3339))
	for i, s := range all {
		from := min(int(time.Duration(columns)*s.Begin.Sub(begin)/whole), columns-1)
		to := int(time.Duration(columns) * s.until(now).Sub(begin) / whole)
		mark := "-"
		if s.Critical {
			mark = "#"
		}
		bar := strings.Repeat(" ", from) + strings.Repeat(mark, max(to-from, 1))
		took := rounded(s.until(now).Sub(s.Begin))
		for _, line := range wrap(texts[i], longest) {
			fmt.Fprintf(&out, "|%-*s| %8s  %s\n", columns, bar, took, line)
			bar, took = "", ""
		}
	}
	return out.String()
}

// text says what a span is, and how it is or ended.
func (s Span) text() string {
	text := s.label()
	if s.End == nil {
		text += " (goes on)"
	}
	if s.Error != "" {
		text += ": " + s.Error
	}
	return text
}

// speaking returns the spans without those that a drawing is clearer without: a container that has not been started yet
// waits, and nothing more is known. What podrun does meanwhile has spans of its own.
func speaking(all []Span) []Span {
	return slices.DeleteFunc(slices.Clone(all), func(s Span) bool {
		return s.Kind == Waiting && !s.Critical && !strings.Contains(s.Detail, ": ")
	})
}

// rounded returns a duration in at most 8 characters.
func rounded(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 10*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dh", d/time.Hour)
}

// indent is how far the lines of a text after the first are indented.
const indent = 2

// wrap divides a text into lines of at most width characters, between words if it can.
func wrap(text string, width int) (lines []string) {
	rest := []rune(strings.TrimSpace(text))
	for len(rest) > width {
		at := width
		for i := width; i > indent; i-- {
			if rest[i] == ' ' {
				at = i
				break
			}
		}
		if len(lines) == maxLines-1 {
			return append(lines, string(rest[:width-1])+"…")
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(strings.Repeat(" ", indent) + strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}
