package printers

import (
	"io"
	"os"

	"golang.org/x/term"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/status/summary"
)

// SGR parameters of the ANSI escape sequences for colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

// Coloured reports whether output to a stream may have colours: the stream is a terminal that
// supports them, and NO_COLOR (no-color.org) is not set.
func Coloured(stream any) bool {
	f := cli.TerminalOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Colour returns text with the escape sequences of a colour. If code is "", text is returned
// unchanged.
func Colour(text, code string) string {
	if code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// seriesColours are colours that are easy to tell apart.
var seriesColours = [...]string{"36", "33", "35", "32", "34", "96", "93", "95"}

// SeriesColour returns the colour of the i-th of several things, such as the logs of containers.
func SeriesColour(i int) string { return seriesColours[i%len(seriesColours)] }

// statusColour returns a function that colours the STATUS text of a pod, or nil if out has no
// colours.
func statusColour(out io.Writer) func(string) string {
	if !Coloured(out) {
		return nil
	}
	return func(text string) string { return Colour(text, colourOf(text)) }
}

// colourOf returns green for a pod that is well, yellow for one in a transient state, faint for a
// deleted one, and red for all others.
func colourOf(status string) string {
	switch level := summary.LevelOf(status); {
	case status == "Deleted":
		return faint
	case level == summary.Waiting:
		return yellow
	case level == summary.Ill:
		return red
	}
	return green
}
