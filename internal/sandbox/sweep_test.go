package sandbox

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSweep: sandboxes that no checkpoint names are removed independently of each other; those that
// one names stay.
func TestSweep(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	kept, stuck := create(t, s, testPod("kept")), create(t, s, testPod("stuck"))
	p := sharingPod(run)
	t.Cleanup(func() { endCgroup(t, p) })
	lost, unlisted := create(t, s, p), newID()
	n.take(unlisted) // as when its directory was removed by somebody else
	known := func(id string) bool { return id == kept.ID }
	refusal := errors.New("the plugin is not there")
	failing := n
	failing.teardown = func(_ context.Context, id string) error {
		if id == stuck.ID {
			return refusal
		}
		return nil
	}
	s.network = failing
	if err := s.Sweep(t.Context(), known); !errors.Is(err, refusal) || !strings.Contains(err.Error(), stuck.ID) {
		t.Errorf("error %v", err)
	}
	if held, err := n.Holders(); err != nil || len(held) != 3 {
		t.Errorf("held %v, %v", held, err)
	}
	if left, err := names(s.dir.root); err != nil || len(left) != 1 || left[0] != kept.ID {
		t.Errorf("left %v, %v", left, err)
	}
	if isPaused(lost.Details) {
		t.Error("the pause process of a lost sandbox runs")
	}
	if !s.Ready(kept) {
		t.Error("one that is known was swept")
	}
	s.network = n
	if err := s.Sweep(t.Context(), known); err != nil {
		t.Error(err)
	}
	// What only the network has is the network's to sweep.
	if err := errors.Join(n.Teardown(t.Context(), stuck.ID), n.Teardown(t.Context(), unlisted)); err != nil {
		t.Error(err)
	}
	remove(t, s, kept)
	bare(t, run, n)
}

// TestSweepNothing: a run directory without sandboxes, or with an interrupted last removal, is not
// an error.
func TestSweepNothing(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	none := func(string) bool { return false }
	if err := s.Sweep(t.Context(), none); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Mkdir(s.dir.root, 0o711), s.dir.mountDir(), s.Sweep(t.Context(), none)); err != nil {
		t.Error(err)
	}
	bare(t, run, n)
	s.network = nil
	if err := s.Sweep(t.Context(), none); err != nil {
		t.Error(err)
	}
}

// TestSweepWaitsForNone: Sweep returns although the network hangs when one sandbox is released.
func TestSweepWaitsForNone(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	hangs, other := create(t, s, testPod("hangs")).ID, create(t, s, testPod("other")).ID
	goesOn := make(chan struct{})
	n.teardown = func(_ context.Context, id string) error {
		if id == hangs {
			<-goesOn
		}
		return nil
	}
	s.network = n
	if err := s.Sweep(t.Context(), func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if held, err := n.Holders(); err != nil || len(held) != 1 || held[0] != hangs {
		t.Errorf("held %v, %v", held, err)
	}
	if _, err := os.Lstat(s.dir.path(other)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other one is there: %v", err)
	}
	close(goesOn)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(s.dir.root); errors.Is(err, os.ErrNotExist) { // with the last one
			break
		}
	}
	bare(t, run, n)
}
