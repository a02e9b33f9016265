package cmd

import (
	"os"
	"slices"

	"golang.org/x/term"
)

// The colours of a terminal, as its escape sequences have them.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

// coloured reports that a stream may be coloured: it is a terminal that can, and nobody has asked for none by
// NO_COLOR (no-color.org).
func coloured(stream any) bool {
	f := terminalOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// colour returns text in a colour; "" is none.
func colour(text, code string) string {
	if code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// statusColour colours the text of a pod's status; nil where there are no colours.
func (a *app) statusColour() func(string) string {
	if !coloured(a.out) {
		return nil
	}
	return func(text string) string { return colour(text, colourOf(text)) }
}

// colourOf is green for what is well, yellow for what is on its way, red for what needs somebody.
func colourOf(status string) string {
	switch {
	case slices.Contains([]string{"Running", "Succeeded", "Completed"}, status):
		return green
	case slices.Contains([]string{"Pending", "ContainerCreating", "PodInitializing", "Terminating", "NotReady", "WaitingForPods"}, status),
		len(status) > 5 && status[:5] == "Init:" && status[5] >= '0' && status[5] <= '9':
		return yellow
	case status == "Deleted":
		return faint
	}
	return red
}
