package cmd

import (
	"io"
	"unicode/utf8"

	"podrun.io/podrun/internal/cli"
)

// plainWriter passes text on so that it does nothing to the terminal that it is for.
type plainWriter struct {
	out io.Writer
	// rest is a character of which the end is not written yet.
	rest []byte
}

// forTerminal is out, or, if that is a terminal, what makes text of pods harmless to it. Programs get all as it is.
func forTerminal(out io.Writer) io.Writer {
	shown := out
	if p, ok := out.(*progress); ok {
		shown = p.out
	}
	if terminalOf(shown) == nil {
		return out
	}
	return &plainWriter{out: out}
}

// Write implements io.Writer.
func (w *plainWriter) Write(b []byte) (int, error) {
	text := append(w.rest, b...)
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= i
			}
			break
		}
	}
	w.rest = append([]byte(nil), text[whole:]...)
	if _, err := io.WriteString(w.out, cli.Plain(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(b), nil
}
