package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"podrun.io/podrun/internal/status/summary"
)

// Exit codes that have the same meaning for every command.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNoRuntime   = 3
	ExitTimeout     = 124
	ExitInterrupted = 130
	ExitBrokenPipe  = 141 // the reader of the output has closed it
	ExitTerminated  = 143 // interrupted by SIGTERM
)

// Error is an error with an exit code and, optionally, a hint for the user. Err is nil if the
// command has already printed everything that there is to say.
type Error struct {
	Code int
	Err  error
	Hint string
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprint("exit code ", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// UsageError marks err as a usage error of a command line, such as podrun once: exit code 2, and a
// hint to read its help, unless err has a hint. nil stays nil.
func UsageError(command string, err error) error {
	if err == nil {
		return nil
	}
	if hinted := (*Error)(nil); errors.As(err, &hinted) && hinted.Code == ExitUsage && hinted.Hint != "" {
		return err
	}
	return &Error{Code: ExitUsage, Err: err, Hint: "see " + command + " --help"}
}

// NeedRoot returns a usage error if the effective user is not root. command is the command line
// that needs root.
func NeedRoot(command string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return &Error{Code: ExitUsage, Err: fmt.Errorf("%s needs root", command), Hint: "run it with sudo"}
}

// Exit prints err and its hint, if there are any, and returns the exit code. interrupted is the
// exit code of a command that was cancelled.
func Exit(errOut io.Writer, err error, interrupted int) int {
	if err == nil {
		return 0
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: ExitFailed, Err: err}
		switch {
		case errors.Is(err, context.Canceled):
			return interrupted
		case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
			e.Hint = "run it as root"
		}
	}
	if e.Err != nil {
		fmt.Fprintf(errOut, "error: %s\n", summary.Plain(strings.TrimSpace(err.Error())))
	}
	if e.Hint != "" {
		fmt.Fprintf(errOut, "hint: %s\n", e.Hint)
	}
	return e.Code
}
