package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cutOffTime is for how long containerd may go on with the start of a container after whoever asked for it
// was killed: it gives the start up, but a shim may come of it all the same.
const cutOffTime = 2 * time.Second

// endStrayShims ends the shims that were started for containers which never ran, until the given time has
// come. Such a shim serves nobody: the caller knows that nothing of the pod lives. containerd itself has
// forgotten it.
func (r *Runtime) endStrayShims(ctx context.Context, ids []string, until time.Time) error {
	for {
		for _, id := range ids {
			t, err := r.task(ctx, id)
			if err != nil {
				return err
			}
			if t == nil {
				if err := killShims(r.Namespace, id); err != nil {
					return fmt.Errorf("ending what a start of %s left: %w", id, err)
				}
			}
		}
		if !time.Now().Before(until) {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// killShims kills the shims that were started under the id of a container.
func killShims(namespace, id string) error {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !isShim(strings.Split(string(text), "\x00"), namespace, id) {
			continue // gone meanwhile, or another program
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// isShim reports that a command line is of the shim of that container.
func isShim(args []string, namespace, id string) bool {
	has := func(flag, value string) bool {
		i := slices.Index(args, flag)
		return i >= 0 && i+1 < len(args) && args[i+1] == value
	}
	return len(args) > 0 && strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-") && has("-namespace", namespace) && has("-id", id)
}

// isBundleLeft reports that a start found the directory of an earlier one that was cut off, which
// containerd has forgotten.
func isBundleLeft(err error, id string) bool {
	return err != nil && strings.HasSuffix(err.Error(), id+": file exists")
}
