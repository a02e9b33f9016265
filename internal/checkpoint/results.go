package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"podrun.io/podrun/internal/pod"
)

// kindResult is the Kind of a Run whose History is the checkpoint of a pod that has its result for good.
const kindResult = "Result"

// SaveResult stores a revision's checkpoint beside the runs of Jobs, where it outlives the revision's data. It returns
// once that survives a power failure. Without a checkpoint it does nothing.
func SaveResult(s *Store, uid pod.UID) error {
	c, err := s.Get(uid)
	if c == nil || err != nil {
		if errors.Is(err, ErrNotFound) {
			err = nil
		}
		return err
	}
	manifest, err := json.Marshal(c.Pod)
	if err != nil {
		return fmt.Errorf("encoding pod %s: %w", c.Key(), err)
	}
	text, err := encode(c, manifest)
	if err != nil {
		return fmt.Errorf("encoding the result of %s: %w", c.Key(), err)
	}
	return s.SaveRun(Run{Kind: kindResult, Namespace: c.Key().Namespace, Name: c.Key().Name, History: text})
}

// RestoreResults makes checkpoints of the results that SaveResult has stored, as those of pods that owner has run, and
// removes the results. A pod that has a checkpoint keeps that. The error names what could not be restored; the rest is.
func RestoreResults(s *Store, owner string) error {
	runs, err := allRuns(s)
	if err != nil {
		return err
	}
	var errs []error
	for _, one := range runs {
		if one.Kind != kindResult {
			continue
		}
		if err = one.Err; err == nil {
			err = restoreResult(s, one, owner)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading %s: %w", s.RunPath(one), err))
		}
	}
	return errors.Join(errs...)
}

// restoreResult makes a checkpoint of a stored result, unless the pod has one, and removes the result.
func restoreResult(s *Store, one Run, owner string) error {
	c := &Checkpoint{}
	if err := json.Unmarshal(one.History, c); err != nil {
		return err
	}
	key := pod.Key{Namespace: one.Namespace, Name: one.Name}
	if c.Version > Version {
		return ErrLater
	}
	if c.Pod == nil || c.Key() != key {
		return errors.New("it is not the result of the pod that its name says")
	}
	there, err := s.Of(key)
	if err != nil {
		return err
	}
	if c.Owner = ""; len(there) == 0 {
		if err := s.Restore(c); err != nil {
			return err
		}
	}
	// The update of a checkpoint that has a result is durable, other than its creation.
	err = s.Update(c.UID(), func(c *Checkpoint) { c.Owner = cmp.Or(c.Owner, owner) })
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return s.RemoveRun(one)
}
