package report

import (
	"io"
	"sync"
)

// commandGuard keeps what containers write from being commands of a CI service that executes those in a step's output:
// they set the step's outputs or variables, hide text from its log, or end podrun's groups. It puts a backslash into
// what would be one: for GitHub Actions "::" at the beginning of a line, and "##[" anywhere, which is Azure Pipelines',
// too; "##vso[" for the latter and "##teamcity[" for TeamCity. All else stays as it is, but for words after "##" that
// begin like these two. Its methods are safe for concurrent use.
type commandGuard struct {
	to  io.Writer
	all *shared

	mu  sync.Mutex
	own position
}

// shared is the position in the log if all streams are written to one, as with 2>&1. A command must be none in a
// stream's own log and none in that one.
type shared struct {
	mu sync.Mutex
	position
}

// position is where in a log something is written.
type position struct {
	inLine bool // a character has been written that is no space
	last   [2]byte
}

// commands reports whether b, written here, would begin a command.
func (p *position) commands(b byte) bool {
	switch b {
	case ':':
		return p.last[1] == ':' && !p.inLine
	case '[', 'v', 'V', 't', 'T':
		return p.last == [2]byte{'#', '#'}
	}
	return false
}

// add moves the position behind b.
func (p *position) add(b byte) {
	switch {
	case b == '\n' || b == '\r': // a carriage return ends a line, too
		p.inLine = false
	case b > ' ' && b < 0x7f && b != ':' || b == ':' && p.last[1] == ':':
		p.inLine = true // other bytes may be part of a space, of which there are many
	}
	p.last = [2]byte{p.last[1], b}
}

// Write implements io.Writer.
func (g *commandGuard) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := g.to.Write(g.safe(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// safe returns text without commands. What is shared is not locked while something is written: nobody may read that.
func (g *commandGuard) safe(text []byte) []byte {
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	safe := make([]byte, 0, len(text))
	add := func(b byte) {
		safe = append(safe, b)
		g.own.add(b)
		g.all.add(b)
	}
	for _, b := range text {
		if g.own.commands(b) || g.all.commands(b) {
			add('\\')
		}
		add(b)
	}
	return safe
}

// Guard returns a writer for text that is not podrun's alone. Where the log is that of a CI service which executes
// commands in it, the text has none.
func (g *Groups) Guard(to io.Writer) io.Writer {
	if g == nil || !g.commands {
		return to
	}
	return &commandGuard{to: to, all: &g.written}
}
