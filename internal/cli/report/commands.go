package report

import (
	"io"
	"sync"
)

// commandGuard keeps what containers write from being commands of GitHub Actions, which executes those in a step's
// output: they set the step's outputs, hide text from its log, or end podrun's groups. It puts a backslash into what
// would be one: "::" at the beginning of a line, and "##[" anywhere. All else stays as it is. Its methods are safe for
// concurrent use.
type commandGuard struct {
	to io.Writer

	mu     sync.Mutex
	inLine bool // a character has been written that is no space
	last   [2]byte
}

// Write implements io.Writer.
func (g *commandGuard) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	safe := make([]byte, 0, len(text))
	for _, b := range text {
		switch {
		case b == ':' && g.last[1] == ':' && !g.inLine, b == '[' && g.last == [2]byte{'#', '#'}:
			safe = append(safe, '\\')
			g.inLine = true
		case b == '\n' || b == '\r': // a carriage return ends a line, too
			g.inLine = false
		case b > ' ' && b < 0x7f && b != ':' || b == ':' && g.last[1] == ':':
			g.inLine = true // other bytes may be part of a space, of which there are many
		}
		safe, g.last = append(safe, b), [2]byte{g.last[1], b}
	}
	if _, err := g.to.Write(safe); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Guard returns a writer for text that is not podrun's alone. Where the log is that of a CI service which executes
// commands in it, the text has none.
func (g *Groups) Guard(to io.Writer) io.Writer {
	if g == nil || !g.commands {
		return to
	}
	return &commandGuard{to: to}
}
