package cli

import (
	"fmt"
	"io"
	"unicode/utf8"

	"podrun.io/podrun/internal/status/summary"
)

// plainWriter escapes control characters in what is written to a terminal; see summary.Plain.
type plainWriter struct {
	out io.Writer
	// rest is an incomplete UTF-8 sequence at the end of the last write.
	rest []byte
}

// Plain makes text that comes from a pod safe for a terminal; see summary.Plain.
func Plain(s string) string { return summary.Plain(s) }

// Warnf prints a warning. The text may contain what comes from a pod or a manifest: it is made safe for
// a terminal.
func Warnf(errOut io.Writer, format string, args ...any) {
	fmt.Fprintln(errOut, "warning: "+Plain(fmt.Sprintf(format, args...)))
}

// WarnIf prints a warning unless it is "".
func WarnIf(errOut io.Writer, text string) {
	if text != "" {
		Warnf(errOut, "%s", text)
	}
}

// ForTerminal returns a writer that makes text that comes from pods safe for the terminal out. If
// out is not a terminal, it returns out, so that other programs get the text unchanged.
func ForTerminal(out io.Writer) io.Writer {
	if !isTerminal(out) {
		return out
	}
	return &plainWriter{out: out}
}

// PrintNames prints names, one per line. On a terminal they are safe and one line each; other
// programs get them unchanged.
func PrintNames(out io.Writer, names ...string) error {
	for _, name := range names {
		if isTerminal(out) {
			name = summary.PlainLine(name)
		}
		if _, err := fmt.Fprintln(out, name); err != nil {
			return err
		}
	}
	return nil
}

// isTerminal reports whether out is a terminal. A writer that writes to a terminal has a method
// Underlying, which returns the terminal.
func isTerminal(out io.Writer) bool {
	if w, ok := out.(interface{ Underlying() io.Writer }); ok {
		out = w.Underlying()
	}
	return TerminalOf(out) != nil
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
	if _, err := io.WriteString(w.out, summary.Plain(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WarnOf prints a warning that has an error as its reason, unless that is nil.
func WarnOf(errOut io.Writer, text string, err error) {
	if err != nil {
		Warnf(errOut, "%s: %v", text, err)
	}
}
