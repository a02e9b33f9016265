// Package cli has what the commands of podrun share: the standard streams, exit codes, errors with
// hints, and the signals that ask a command to stop. The packages below it do the work of the
// commands. None of them knows cobra, and only package flags knows flags: package cmd gives them
// options and connections.
//
// An error carries its exit code (Error). It is given by the code that knows what the error means:
// agenterror for the agent's errors, once for the result of a run, printers.Changes for diff, and so
// on; an error without one is ExitFailed. Exit prints the error and returns the code.
//
// Begin reading at Error and Exit.
package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Streams are the standard streams of a command. Standard output is for data, standard error for
// messages to the user.
type Streams struct {
	In          io.Reader
	Out, ErrOut io.Writer
}

// SizeOf returns a function that returns the present size of a stream's terminal in characters; nil if the stream is
// none, or cannot be drawn on.
func SizeOf(stream any) func() (width, height int) {
	f := TerminalOf(stream)
	if f == nil || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width < 1 || height < 1 {
			return 80, 24 // the size is unknown
		}
		return width, height
	}
}

// TerminalOf returns the file of a stream if it is a terminal, or nil.
func TerminalOf(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Checked is an output that is written in many small pieces: it keeps the first error, which is asked for once, at the
// end. Without that, what a full disk cuts off would look whole.
type Checked struct {
	to  io.Writer
	err error
}

// NewChecked returns a Checked that writes to an output.
func NewChecked(to io.Writer) *Checked { return &Checked{to: to} }

// Write implements io.Writer.
func (c *Checked) Write(text []byte) (int, error) {
	n, err := c.to.Write(text)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// Underlying returns the output, which may be a terminal.
func (c *Checked) Underlying() io.Writer { return c.to }

// Err returns the first error of a write.
func (c *Checked) Err() error { return c.err }
