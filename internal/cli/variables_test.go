package cli

import (
	"bytes"
	"log/slog"
	"regexp"
	"slices"
	"testing"
)

// TestWarnOfVariables: a variable of podrun that sets no flag is named, with the one that was meant, but not its value.
func TestWarnOfVariables(t *testing.T) {
	for name, value := range map[string]string{
		"PODRUN_POD_SECURTY": "s3cret", "PODRUN_OF_NOTHING": "s3cret", "PODRUN_POD_SECURITY": "restricted",
		"PODRUN_NODE_NAM": "", "PODRUN_E2E_EVENTS": "off", "NOT_PODRUN_NODE_NAME": "x",
	} {
		t.Setenv(name, value)
	}
	var out bytes.Buffer
	WarnOfVariables(slog.New(slog.NewTextHandler(&out, nil)), []string{"PODRUN_NODE_NAME", "PODRUN_POD_SECURITY"})
	var got []string
	for _, line := range regexp.MustCompile(`level=WARN msg="(.*)"`).FindAllStringSubmatch(out.String(), -1) {
		got = append(got, line[1])
	}
	if want := []string{
		"environment variable PODRUN_OF_NOTHING sets no flag of podrun",
		"environment variable PODRUN_POD_SECURTY sets no flag of podrun; did you mean PODRUN_POD_SECURITY?",
	}; !slices.Equal(got, want) || bytes.Contains(out.Bytes(), []byte("s3cret")) {
		t.Errorf("got %q, want %q in\n%s", got, want, &out)
	}
}
