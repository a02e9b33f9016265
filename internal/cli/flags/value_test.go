package flags

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestValueErrors: an error names the flag, its value and what it must be, and nothing of Go.
func TestValueErrors(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--tail=x":                    `--tail "x": must be a whole number`,
		"--tail=99999999999999999999": `--tail "99999999999999999999": is too large or too small a number`,
		"--count=-1":                  `--count "-1": must be a whole number, 0 or more`,
		"--since=5":                   `--since "5": must be a duration with its unit, such as 30s, 5m or 1h30m`,
		"--watch=maybe":               `--watch "maybe": must be true or false`,
		"-w=maybe":                    `--watch "maybe": must be true or false`,
		"--of=a":                      `--of "a": a must be formatted as key=value`,
		"--none":                      "unknown flag: --none",
	} {
		f := pflag.NewFlagSet("podrun", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		f.Int64("tail", 0, "")
		f.Uint16("count", 0, "")
		f.Duration("since", 0, "")
		f.BoolP("watch", "w", false, "")
		f.StringToString("of", nil, "")
		err := f.Parse([]string{arg})
		if err == nil {
			t.Fatal(arg)
		}
		if got := ValueError(err).Error(); got != want || strings.Contains(got, "strconv") {
			t.Errorf("%s: %s, want %s", arg, got, want)
		}
	}
	if other := errors.New("other"); !errors.Is(ValueError(other), other) {
		t.Error("another error was changed")
	}
}
