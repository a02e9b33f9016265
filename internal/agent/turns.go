package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// turns implement reconcile.Turns among all podruns of a run directory: by a file for each pod, whose lock is the turn and
// whose size counts the beginnings and ends of turns, which can be noted down on a full disk too. The kernel drops the
// lock of a process that was killed.
type turns struct {
	dirs layout.Dirs
	log  *slog.Logger
}

// Begun implements reconcile.Turns.
func (t turns) Begun(key pod.Key) int64 {
	info, err := os.Stat(t.dirs.Turn(key))
	if err != nil {
		return 0
	}
	return info.Size()
}

// Take implements reconcile.Turns. Where there can be no lock, the pod is not kept waiting for that.
func (t turns) Take(ctx context.Context, key pod.Key, since int64) (done func() int64, err error) {
	f, err := t.lock(ctx, t.dirs.Turn(key))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		t.log.Warn("another podrun could do something to the pod at the same time", "pod", key.String(), "why", err)
		return func() int64 { return since }, nil
	}
	now := since
	if info, err := f.Stat(); err == nil {
		now = info.Size()
	}
	begun := now%2 == 1 // by one that was killed, whatever it did until then
	if begun {
		t.count(f, now+1)
	}
	if begun || now != since {
		unlockTurn(f)
		return nil, nil
	}
	t.count(f, now+1)
	return func() int64 {
		t.count(f, now+2)
		unlockTurn(f)
		return now + 2
	}, nil
}

func (t turns) count(f *os.File, n int64) {
	if err := f.Truncate(n); err != nil {
		t.log.Warn("another podrun does not hear of what is done to a pod", "why", err)
	}
}

// Forget implements reconcile.Turns.
func (t turns) Forget(key pod.Key) {
	path := t.dirs.Turn(key)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer unlockTurn(f)
	if locked, err := tryTurn(f, path); err == nil && locked { // else somebody is about to make the pod again
		_ = os.Remove(path)
	}
}

// lock waits for the lock of the file, which it makes if need be.
func (t turns) lock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		locked, err := tryTurn(f, path)
		if locked {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(turnPoll):
		}
	}
}

// turnPoll is how often it is tried to have a turn that another has.
const turnPoll = 5 * time.Millisecond

// tryTurn locks a file unless somebody holds it, or it is not the one at path any more.
func tryTurn(f *os.File, path string) (locked bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, now), err
}

func unlockTurn(f *os.File) {
	// Explicitly, because a child between fork and exec still shares the open file.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}
