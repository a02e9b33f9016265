package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// writing is the revisions whose files are being written, and their pods.
type writing struct {
	of map[pod.UID]pod.Key
	// ended wakes those who wait. Its lock is the Store's.
	ended *sync.Cond
}

// wait waits until neither the revision's file is being written nor one of another revision of the pod; a zero key is
// no pod's. The caller holds the Store's lock, which is free in the meantime.
func (w writing) wait(uid pod.UID, key pod.Key) {
	busy := func() bool {
		for other, of := range w.of {
			if other == uid || of == key {
				return true
			}
		}
		return false
	}
	for busy() {
		w.ended.Wait()
	}
}

// Update changes the revision's checkpoint. change gets a copy to modify; if it changes nothing,
// nothing is written. ErrNotFound means that there is no checkpoint.
func (s *Store) Update(uid pod.UID, change func(*Checkpoint)) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing.wait(uid, pod.Key{})
	if err := s.refresh(uid); err != nil {
		return err
	}
	was := s.files[uid]
	if was.checkpoint == nil {
		return was.err
	}
	next := was.checkpoint.Clone()
	change(next)
	return s.write(next, was, s.disk.Write)
}

// Create creates the checkpoint of a new revision of the pod, or replaces the manifest and the
// owner of an existing one. The revision is then the pod's newest. A checkpoint that is permanently
// unreadable is replaced, but not one that is ErrLater. ErrUIDInUse means that the UID belongs to
// another pod.
func (s *Store) Create(p *v1.Pod, owner string) error {
	if err := layout.CheckUID(p.UID); err != nil {
		return err
	}
	key := pod.KeyOf(p)
	if _, err := s.Of(key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing.wait(p.UID, key)
	if err := s.refresh(p.UID); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	next, was := &Checkpoint{Version: Version, Sequence: 1}, s.files[p.UID]
	switch {
	case was == nil:
	case was.checkpoint != nil && was.checkpoint.Key() != key:
		return fmt.Errorf("saving %s with UID %s, which %s has: %w", key, p.UID, was.checkpoint.Key(), ErrUIDInUse)
	case was.checkpoint != nil:
		next = was.checkpoint.Clone()
	}
	next.Pod, next.Owner = p.DeepCopy(), owner
	if all := s.of(key); len(all) > 0 && all[0].UID() != p.UID {
		next.Sequence = all[0].Sequence + 1
	}
	return s.write(next, was, s.disk.Create)
}

// Restore writes a checkpoint as it is, to convert what the former version of podrun saved.
func (s *Store) Restore(c *Checkpoint) error {
	if err := layout.CheckUID(c.UID()); err != nil {
		return err
	}
	next := c.Clone()
	next.Version = Version
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing.wait(next.UID(), pod.Key{})
	return s.write(next, nil, s.disk.Create)
}

// write replaces the file whose last state is was, unless the content is the same; a nil was means
// that there was no file. It writes by to, or durably if there is a result. The caller holds mu and has waited for
// what was being written. mu is free while the disk is written, so that a slow one delays only this pod.
func (s *Store) write(next *Checkpoint, was *file, to func(pod.UID, []byte) (Stamp, error)) error {
	uid, now := next.UID(), &file{checkpoint: next}
	if was != nil && was.checkpoint != nil && next.Pod == was.checkpoint.Pod {
		now.manifest = was.manifest
	} else {
		var err error
		if now.manifest, err = json.Marshal(next.Pod); err != nil {
			return fmt.Errorf("encoding pod %s: %w", next.Key(), err)
		}
	}
	data, err := encode(next, now.manifest)
	if err != nil {
		return fmt.Errorf("encoding the checkpoint of %s: %w", next.Key(), err)
	}
	if was != nil && next.hasResult() {
		to = s.disk.WriteDurable
	}
	if now.sum = sumOf(data); was != nil && was.sum == now.sum {
		return nil
	}
	func() {
		s.writing.of[uid] = next.Key()
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			delete(s.writing.of, uid)
			s.writing.ended.Broadcast()
		}()
		now.stamp, err = to(uid, data)
	}()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return fmt.Errorf("writing the checkpoint of %s: %w", next.Key(), err)
	}
	s.put(uid, now)
	return nil
}

// Remove removes the revision's directory, the checkpoint last.
func (s *Store) Remove(ctx context.Context, uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	// Without the lock: the time grows with the size of the pod's data, and the file stays until
	// the end.
	if err := s.disk.Remove(ctx, uid); err != nil {
		return fmt.Errorf("removing the data of revision %s: %w", uid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing.wait(uid, pod.Key{}) // what is being written would be shown afterwards
	s.forget(uid)
	return nil
}

// Sweep removes what is left of interrupted creations and removals of revisions' directories.
func (s *Store) Sweep(ctx context.Context) error { return s.disk.Sweep(ctx) }
