package sandbox

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestRemoveGoesOn: if the network cannot be released, Remove removes everything else, and the next
// Remove releases the network.
func TestRemoveGoesOn(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	p := sharingPod(run)
	t.Cleanup(func() { endCgroup(t, p) })
	made := create(t, s, p)
	stuck := n
	refusal := errors.New("the plugin is not there")
	stuck.teardown = func(context.Context, string) error { return refusal }
	s.network = stuck
	for range 2 {
		if err := s.Remove(t.Context(), made); !errors.Is(err, refusal) {
			t.Fatalf("error %v", err)
		}
		if _, err := os.Lstat(s.dir.root); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory of the sandboxes is still there: %v", err)
		}
		if isPaused(made.Details) {
			t.Error("the pause process runs")
		}
	}
	s.network = n
	remove(t, s, made)
	bare(t, run, n)
}

// TestRemoveHindered: a pin that cannot be removed prevents neither the release of the network nor
// the removal of the other pins, and the user IDs stay allocated as long as anything of the sandbox
// is left.
func TestRemoveHindered(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	p := testPod("web")
	p.Spec.HostUsers = new(false)
	made := create(t, s, p)
	pin := s.dir.file(made.ID, pinIPC)
	if err := errors.Join(unpin(pin), os.Mkdir(pin, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), made); err == nil || !strings.Contains(err.Error(), "not touched") {
		t.Fatalf("error %v", err)
	}
	if held, err := n.Holders(); err != nil || len(held) > 0 {
		t.Errorf("held %v, %v", held, err)
	}
	left, err := names(s.dir.path(made.ID))
	if err != nil || len(left) != 2 {
		t.Errorf("left %q, %v", left, err)
	}
	if taken, err := s.dir.usersInUse(); err != nil || !taken[made.Details.FirstUser] {
		t.Errorf("%v, %v", taken, err)
	}
	if err := os.Remove(pin); err != nil {
		t.Fatal(err)
	}
	remove(t, s, made)
	bare(t, run, n)
}

// TestRemoveGone: the run directory is empty, as after a reboot, and the network still has the
// sandbox's resources.
func TestRemoveGone(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	gone := prepare(t, s, sharingPod(run))
	n.take(gone.ID)
	remove(t, s, gone)
	bare(t, run, n)
}

// TestRemoveWaitsForNobody: while the network of one pod hangs, other sandboxes can be created and
// removed, and a second Remove of the same one stops waiting when its context ends.
func TestRemoveWaitsForNobody(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	stuck := create(t, s, testPod("stuck"))
	hung, release := make(chan struct{}), make(chan struct{})
	hanging := n
	hanging.teardown = func(_ context.Context, id string) error {
		if id == stuck.ID {
			close(hung)
			<-release
		}
		return nil
	}
	s.network = hanging
	removed := make(chan error)
	go func() { removed <- s.Remove(context.Background(), stuck) }()
	<-hung
	remove(t, s, create(t, s, testPod("web")))
	other, _ := newStore(t, run) // as another process
	remove(t, other, create(t, other, testPod("web")))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := other.Remove(ctx, stuck); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if err := other.Sweep(t.Context(), func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-removed; err != nil {
		t.Error(err)
	}
	bare(t, run, n)
}
