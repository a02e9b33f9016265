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

	"podrun.io/podrun/internal/cli"
)

// The exit codes that mean the same for every command.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNoRuntime   = 3
	exitInterrupted = 130
	exitBrokenPipe  = 141 // nobody reads the output any more
	exitTerminated  = 143 // interrupted, by SIGTERM
)

// failure is an error with an exit code of its own. Err nil: all has been said.
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

// usage marks err as a wrong use of c.
func usage(c *cobra.Command, err error) error {
	return &failure{code: exitUsage, err: err, hint: "see " + c.CommandPath() + " --help"}
}

// arguments makes a command's check of its arguments a matter of usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(c, err)
		}
		return nil
	}
}

// many is for takes: as many arguments as one likes.
const many = math.MaxInt

// argCount checks how many arguments a command is given.
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

// needRoot fails for other users than root.
func needRoot(c *cobra.Command) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return &failure{code: exitUsage, err: fmt.Errorf("%s needs root", c.CommandPath()), hint: "run it with sudo"}
}

// interrupted is the exit code of what was interrupted, by the signal as a shell counts.
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

// exit says what went wrong, if anything did, and returns the exit code.
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
		fmt.Fprintf(a.errOut, "error: %s\n", cli.Plain(strings.TrimSpace(err.Error())))
	}
	if f.hint != "" {
		fmt.Fprintf(a.errOut, "hint: %s\n", f.hint)
	}
	return f.code
}
