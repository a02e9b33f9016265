package nodeshutdown

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"podrun.io/podrun/internal/sys"
)

// answerTimeout is how long systemctl may take to answer. systemd is at its busiest when a shutdown
// begins: on a slow machine an answer took longer than 3 s. It is less than half of the time that
// systemd gives a service to stop.
const answerTimeout = 30 * time.Second

// Stopping reports whether systemd is shutting the machine down. It needs neither D-Bus nor logind:
// systemctl asks systemd itself. Where there is no systemd, Stopping returns false; if systemd does
// not answer, false and an error.
func Stopping(ctx context.Context) (bool, error) {
	out, err := sys.Program{Name: "systemctl", Options: []string{"is-system-running"}}.Run(ctx, answerTimeout)
	state := strings.TrimSpace(string(out.Stdout))
	if state == "" && err != nil && !errors.Is(err, sys.ErrNoProgram) {
		return false, fmt.Errorf("asking systemd for its state: %w", err)
	}
	// An exit code only says that the state is not "running".
	return state == "stopping", nil
}
