package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

const (
	// mountPatience is how long a start waits for a mount command. For a server that does not answer that takes minutes;
	// whoever wants something else with the pod meanwhile must not wait for it.
	mountPatience = 3 * time.Second
	// mountLimit is how long one may take at all.
	mountLimit = 5 * time.Minute
	// unmountPatience is how long the end of a pod waits for a server before that is an error, to be tried again.
	unmountPatience = 10 * time.Second
)

// attempt is a mount or an unmount that goes on, whoever waits for it.
type attempt struct {
	uid    pod.UID
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once it is done
}

// begin does f for a revision, apart from who waits for it.
func begin(ctx context.Context, uid pod.UID, f func(context.Context) error) *attempt {
	a := &attempt{uid: uid, done: make(chan struct{})}
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(a.done)
		defer a.cancel()
		a.err = f(ctx)
	}()
	return a
}

// mountBy mounts a file system of one of these kinds on dir by the machine's mount command. It does not begin another
// attempt while one goes on.
func (v *Volumes) mountBy(ctx context.Context, uid pod.UID, dir string, mount sys.Program, kinds []string) error {
	v.mu.Lock()
	a := v.attempts[dir]
	if a == nil || a.mounted() { // what is mounted was found without it, so it has been unmounted since
		a = begin(ctx, uid, func(ctx context.Context) error { return v.mountNow(ctx, dir, mount, kinds) })
		v.attempts[dir] = a
	}
	v.mu.Unlock()
	if !a.wait(ctx, v.patience) {
		return cmp.Or(ctx.Err(), fmt.Errorf("%v: goes on; the server has not answered yet", mount))
	}
	v.forget(dir, a)
	return a.err
}

// mountNow calls the mount command and sees that it has done what it was to do: whatever misled it, nothing but a file
// system of these kinds stays.
func (v *Volumes) mountNow(ctx context.Context, dir string, mount sys.Program, kinds []string) error {
	out, err := mount.Run(ctx, mountLimit)
	if errors.Is(err, sys.ErrNoProgram) {
		return errors.New("the machine has no mount command")
	}
	if err != nil {
		return fmt.Errorf("%v: %w: %s", mount, err, out.Text())
	}
	kind, err := v.kindOn(dir)
	if err != nil || slices.Contains(kinds, kind) {
		return err
	}
	if kind == "" {
		return fmt.Errorf("%v: it says that it is mounted, but there is no mount on %s", mount, dir)
	}
	return errors.Join(fmt.Errorf("%v: it mounted a file system of the type %q, which is unmounted", mount, kind), unmountTree(dir))
}

// kindOn is the type of the file system that is mounted on a directory, as the table of mounts has it; "" if none is.
// The file system itself is not asked: its server may not answer.
func kindOn(dir string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(parent, filepath.Base(dir))))
	if err != nil || len(mounts) == 0 {
		return "", err
	}
	return mounts[len(mounts)-1].FSType, nil
}

// wait reports that the attempt is done; not so when ctx ends or patience is over before.
func (a *attempt) wait(ctx context.Context, patience time.Duration) bool {
	enough := time.NewTimer(patience)
	defer enough.Stop()
	select {
	case <-a.done:
		return true
	case <-ctx.Done():
	case <-enough.C:
	}
	return false
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

// unmountRemote unmounts a file system whose server may not answer. What takes longer goes on, and is waited for anew
// by the next call.
func (v *Volumes) unmountRemote(ctx context.Context, uid pod.UID, path string) error {
	v.mu.Lock()
	a := v.unmounts[path]
	if a == nil {
		a = begin(ctx, uid, func(context.Context) error { return unmount(path) })
		v.unmounts[path] = a
	}
	v.mu.Unlock()
	if !a.wait(ctx, unmountPatience) {
		return fmt.Errorf("unmounting %s goes on; its server does not answer", path)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unmounts[path] == a {
		delete(v.unmounts, path)
	}
	return a.err
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
