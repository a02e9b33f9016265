package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/summary"
)

// Exit codes that have the same meaning for every command.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNoRuntime   = 3
	exitInterrupted = 130
	exitBrokenPipe  = 141 // the reader of the output has closed it
	exitTerminated  = 143 // interrupted by SIGTERM
)

// failure is an error with an exit code and, optionally, a hint for the user. err is nil if the
// command has already printed everything that there is to say.
type failure struct {
	code int
	err  error
	hint string
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprint("exit code ", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// usage marks err as a usage error of command c: exit code 2, and a hint to read the help of c.
func usage(c *cobra.Command, err error) error {
	return &failure{code: exitUsage, err: err, hint: "see " + c.CommandPath() + " --help"}
}

// arguments turns the errors of check into usage errors.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(c, err)
		}
		return nil
	}
}

// many is the maximum for argCount that allows any number of arguments.
const many = math.MaxInt

// argCount returns a check that a command has at least least and at most most arguments.
func argCount(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		synopsis := strings.TrimSuffix(c.CommandPath(), c.Name()) + c.Use
		switch {
		case len(args) < least:
			return usage(c, fmt.Errorf("an argument is missing: %s", synopsis))
		case len(args) <= most:
			return nil
		case c.HasSubCommands():
			return usage(c, fmt.Errorf("unknown command %q for %q", args[most], c.CommandPath()))
		case most == 0:
			return usage(c, fmt.Errorf("unexpected argument %q: %s takes none", args[0], c.CommandPath()))
		default:
			return usage(c, fmt.Errorf("unexpected argument %q: %s", args[most], synopsis))
		}
	}
}

// needRoot returns a usage error if the effective user is not root.
func needRoot(c *cobra.Command) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return &failure{code: exitUsage, err: fmt.Errorf("%s needs root", c.CommandPath()), hint: "run it with sudo"}
}

// interrupted returns the exit code of an interrupted command: 128 plus the number of SIGTERM or
// SIGPIPE, as shells do, and that of SIGINT for all other signals.
func (a *app) interrupted() int {
	if a.caught == nil {
		return exitInterrupted
	}
	switch syscall.Signal(a.caught.Load()) {
	case syscall.SIGTERM:
		return exitTerminated
	case syscall.SIGPIPE:
		return exitBrokenPipe
	default:
		return exitInterrupted
	}
}

// exit prints the error and its hint, if there are any, and returns the exit code.
func (a *app) exit(err error) int {
	if err == nil {
		return 0
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{code: exitFailed, err: err}
		switch {
		case errors.Is(err, context.Canceled):
			return a.interrupted()
		case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
			f.hint = "run it as root"
		}
	}
	if f.err != nil {
		fmt.Fprintf(a.errOut, "error: %s\n", summary.Plain(strings.TrimSpace(err.Error())))
	}
	if f.hint != "" {
		fmt.Fprintf(a.errOut, "hint: %s\n", f.hint)
	}
	return f.code
}
