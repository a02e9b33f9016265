package volume

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"podrun.io/podrun/internal/pod"
)

const (
	// mountPatience is how long a start waits for a mount command. For a server that does not answer that takes minutes;
	// whoever wants something else with the pod meanwhile must not wait for it.
	mountPatience = 3 * time.Second
	// mountLimit is how long one may take at all.
	mountLimit = 5 * time.Minute
)

// attempt is a mount command that goes on, whoever waits for it.
type attempt struct {
	uid    pod.UID
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once it is done
}

// mountBy mounts on dir by the machine's mount command with args. It does not begin another attempt while one goes on.
func (v *Volumes) mountBy(ctx context.Context, uid pod.UID, dir string, args []string) error {
	v.mu.Lock()
	a := v.attempts[dir]
	if a == nil || a.mounted() { // what is mounted was found without it, so it has been unmounted since
		a = begin(ctx, uid, args)
		v.attempts[dir] = a
	}
	v.mu.Unlock()
	patience := time.NewTimer(v.patience)
	defer patience.Stop()
	select {
	case <-a.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-patience.C:
		return fmt.Errorf("mount %s: goes on; the server has not answered yet", strings.Join(args, " "))
	}
	v.forget(dir, a)
	return a.err
}

// mounted reports that the attempt has succeeded.
func (a *attempt) mounted() bool {
	select {
	case <-a.done:
		return a.err == nil
	default:
		return false
	}
}

func begin(ctx context.Context, uid pod.UID, args []string) *attempt {
	a := &attempt{uid: uid, done: make(chan struct{})}
	ctx, a.cancel = context.WithTimeout(context.WithoutCancel(ctx), mountLimit)
	go func() {
		defer close(a.done)
		defer a.cancel()
		cmd := exec.CommandContext(ctx, "mount", args...)
		// With its helper, as mount.nfs, which does the waiting.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		switch {
		case errors.Is(err, exec.ErrNotFound):
			a.err = errors.New("the machine has no mount command")
		case err != nil:
			a.err = fmt.Errorf("mount %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}()
	return a
}

func (v *Volumes) forget(dir string, a *attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.attempts[dir] == a {
		delete(v.attempts, dir)
	}
}

// giveUp ends what is being mounted for a revision, so that nothing is mounted after it was torn down.
func (v *Volumes) giveUp(ctx context.Context, uid pod.UID) error {
	v.mu.Lock()
	going := map[string]*attempt{}
	for dir, a := range v.attempts {
		if a.uid == uid {
			going[dir] = a
		}
	}
	v.mu.Unlock()
	for dir, a := range going {
		a.cancel()
		select {
		case <-a.done:
			v.forget(dir, a)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
