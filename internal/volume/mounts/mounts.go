// Package mounts mounts and unmounts the file systems of volumes. A server that does not answer
// blocks no caller for long: after some seconds the call fails, the mount or unmount continues, and
// the next call waits for it again.
//
// It does not decide what is mounted or where, and it keeps no record: the kernel's mount table is
// the record. Begin reading at Mounter.
package mounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

const (
	// mountPatience is how long the start of a container waits for a mount command. With a server
	// that does not answer, mounting takes minutes; other operations on the pod must not wait so
	// long.
	mountPatience = 3 * time.Second
	// mountLimit is the timeout of a mount command.
	mountLimit = 5 * time.Minute
	// unmountPatience is how long the termination of a pod waits for an unmount; after that it
	// fails with an error and is retried.
	unmountPatience = 10 * time.Second
)

// attempt is a mount or an unmount that continues even if its caller stops waiting.
type attempt struct {
	uid    pod.UID
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid when done is closed
}

// begin runs f for a pod revision in the background. It ends only by itself or by a.cancel, not
// when ctx ends.
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

// Mounter runs mount commands and unmounts what they mounted. Its methods may be called concurrently.
type Mounter struct {
	// Patience is how long Mount waits.
	Patience time.Duration
	// KindOn returns the type of the file system that is mounted on a directory.
	KindOn func(dir string) (string, error)

	mu         sync.Mutex
	mounting   map[string]*attempt // in progress, by mount point
	unmounting map[string]*attempt // in progress, by mount point
}

// New returns a Mounter.
func New() *Mounter {
	return &Mounter{
		Patience: mountPatience, KindOn: KindOn,
		mounting: map[string]*attempt{}, unmounting: map[string]*attempt{},
	}
}

// Mount mounts a file system of one of these types on dir with the machine's mount command. It
// starts no second attempt while one is in progress.
func (m *Mounter) Mount(ctx context.Context, uid pod.UID, dir string, mount sys.Program, kinds []string) error {
	m.mu.Lock()
	a := m.mounting[dir]
	// An attempt that succeeded is outdated: the caller found nothing mounted, so its mount was
	// unmounted since.
	if a == nil || a.mounted() {
		a = begin(ctx, uid, func(ctx context.Context) error { return m.mountNow(ctx, dir, mount, kinds) })
		m.mounting[dir] = a
	}
	m.mu.Unlock()
	if !a.wait(ctx, m.Patience) {
		return cmp.Or(ctx.Err(), fmt.Errorf("%v: goes on; the server has not answered yet", mount))
	}
	m.forget(dir, a)
	return a.err
}

// mountNow runs the mount command and verifies its result: whatever misled the command, no file
// system of a type other than these stays mounted.
func (m *Mounter) mountNow(ctx context.Context, dir string, mount sys.Program, kinds []string) error {
	out, err := mount.Run(ctx, mountLimit)
	if errors.Is(err, sys.ErrNoProgram) {
		return errors.New("the machine has no mount command")
	}
	if err != nil {
		return fmt.Errorf("%v: %w: %s", mount, err, out.Text())
	}
	kind, err := m.KindOn(dir)
	if err != nil || slices.Contains(kinds, kind) {
		return err
	}
	if kind == "" {
		return fmt.Errorf("%v: the command succeeded, but there is no mount on %s", mount, dir)
	}
	return errors.Join(
		fmt.Errorf("%v: it mounted a file system of the type %q, which is unmounted", mount, kind),
		UnmountTree(dir),
	)
}

// inTable returns a volume's path as it is in the mount table, without accessing the volume.
func inTable(dir string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir)) // trusted: a directory of podrun's own, or of plugins
	return filepath.Join(parent, filepath.Base(dir)), err
}

// KindOn returns the type of the file system that is mounted on a directory, from the mount table;
// "" if none is. It does not access the file system itself, because its server may not answer.
func KindOn(dir string) (string, error) {
	at, err := inTable(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(at))
	if err != nil || len(mounts) == 0 {
		return "", err
	}
	return mounts[len(mounts)-1].FSType, nil
}

// wait reports whether the attempt is done; false if ctx ended or patience elapsed before that.
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

// mounted reports whether the attempt has succeeded.
func (a *attempt) mounted() bool {
	select {
	case <-a.done:
		return a.err == nil
	default:
		return false
	}
}

// UnmountRemote unmounts a file system whose server may not answer. An unmount that takes longer
// than unmountPatience continues, and the next call waits for it again.
func (m *Mounter) UnmountRemote(ctx context.Context, uid pod.UID, path string) error {
	m.mu.Lock()
	a := m.unmounting[path]
	if a == nil {
		a = begin(ctx, uid, func(context.Context) error { return Unmount(path) })
		m.unmounting[path] = a
	}
	m.mu.Unlock()
	if !a.wait(ctx, unmountPatience) {
		return fmt.Errorf("unmounting %s goes on; its server does not answer", path)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unmounting[path] == a {
		delete(m.unmounting, path)
	}
	return a.err
}

func (m *Mounter) forget(dir string, a *attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounting[dir] == a {
		delete(m.mounting, dir)
	}
}

// Cancel cancels the mounts in progress of a pod revision and waits for their end, so that nothing
// is mounted after its teardown.
func (m *Mounter) Cancel(ctx context.Context, uid pod.UID) error {
	m.mu.Lock()
	going := map[string]*attempt{}
	for dir, a := range m.mounting {
		if a.uid == uid {
			going[dir] = a
		}
	}
	m.mu.Unlock()
	for dir, a := range going {
		a.cancel()
		select {
		case <-a.done:
			m.forget(dir, a)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Unmount unmounts the topmost mount on a path, if there is one; it never forces.
func Unmount(path string) error {
	if err := sys.Unmount(path); !errors.Is(err, sys.ErrNotMounted) {
		return err
	}
	return nil
}

// detach is Unmount that does not wait for the file system.
func detach(path string) error {
	if err := sys.Detach(path); !errors.Is(err, sys.ErrNotMounted) {
		return err
	}
	return nil
}

// UnmountTree unmounts a bind mount of podrun's, including the mounts that it got from its source;
// they stay mounted in the source.
func UnmountTree(path string) error {
	path, err := inTable(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return fmt.Errorf("listing mounts on %s: %w", path, err)
	}
	if len(mounts) == 0 {
		return nil
	}
	if slices.ContainsFunc(mounts, IsShared) { // else it is not asked for: its server may not answer
		if err := sys.SetPropagation(path, sys.SlaveTree); err != nil && !errors.Is(err, sys.ErrNotMounted) {
			return fmt.Errorf("making %s a slave mount: %w", path, err)
		}
	}
	for _, m := range slices.Backward(mounts) {
		unmount := Unmount
		if strings.HasPrefix(m.FSType, "nfs") { // the last mount of a server that does not answer
			unmount = detach
		}
		if err := unmount(m.Mountpoint); err != nil {
			return err
		}
	}
	return nil
}
