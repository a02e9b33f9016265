package podlog

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"podrun.io/podrun/internal/status/summary"
)

// longest is how much of a line without an end is kept until it is passed on as a line.
const longest = 16 << 10

// lines makes lines of the text of one stream.
type lines struct {
	*source
	stream string
	rest   string // a line whose end is not read yet
	time   string // of the last line
	// within: rest does not begin with a time, because the beginning of its line was passed on.
	within bool
}

// Write implements io.Writer. It waits while too many lines wait to be merged.
func (l *lines) Write(b []byte) (int, error) {
	for part := range slices.Chunk(b, batchBytes) {
		if err := l.write(part); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (l *lines) write(b []byte) error {
	text := l.rest + string(b)
	all := make([]Line, 0, bytes.Count(b, []byte{'\n'}))
	for {
		line, after, ended := strings.Cut(text, "\n")
		if !ended && len(text) < longest {
			break
		}
		if !ended {
			n := longest - 1
			for n > longest-utf8.UTFMax && !utf8.RuneStart(text[n]) {
				n--
			}
			line, after = text[:n], text[n:]
		}
		all = append(all, l.line(line))
		text, l.within = after, !ended
	}
	l.rest = text
	if len(all) == 0 {
		return nil
	}
	return l.add(all)
}

// line splits a line into its time and its text. A line that podrun did not write may have no time; it has the time of
// the line before it.
func (l *lines) line(text string) Line {
	at, rest, ok := strings.Cut(text, " ")
	if ok && !l.within {
		if _, err := time.Parse(time.RFC3339Nano, at); err == nil {
			l.time, text = at, rest
		}
	}
	return Line{Time: l.time, Container: l.container, Stream: l.stream, Text: text}
}

// end adds a last line that has no end.
func (l *lines) end() error {
	if l.rest == "" {
		return nil
	}
	_, err := l.Write([]byte{'\n'})
	return err
}

// Last returns the last lines of the merged logs, at most most of them and with about limit bytes, with text that
// cannot act: without the sequences of terminals, and other control characters are escaped.
func Last(ctx context.Context, o Options, most, limit int) (last []Line, err error) {
	size := 0
	err = Merge(ctx, o, func(batch []Line) error {
		for _, line := range batch {
			last = append(last, line)
			size += len(line.Text)
		}
		for len(last) > most || size > limit && len(last) > 1 {
			size -= len(last[0].Text)
			last = last[1:]
		}
		return nil
	})
	for i := range last {
		last[i].Text = summary.Plain(escapeSequence.ReplaceAllString(last[i].Text, ""))
	}
	return last, err
}

// escapeSequence matches a terminal escape sequence or a carriage return.
var escapeSequence = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\a\x1b]*(\a|\x1b\\\\)|\r")
