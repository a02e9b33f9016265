package sandbox

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestChooseUsers(t *testing.T) {
	t.Parallel()
	const id = "ffffffff00000000ffffffff00000000"
	first, err := chooseUsers(id, nil)
	if err != nil || first < firstUsers || first >= endOfUsers || first%65536 != 0 {
		t.Fatalf("%#x, %v", first, err)
	}
	second, err := chooseUsers(id, map[uint32]bool{first: true})
	if err != nil || second == first {
		t.Errorf("%#x again: %v", second, err)
	}
	all := map[uint32]bool{}
	for users := uint32(firstUsers); users < endOfUsers; users += 65536 {
		all[users] = true
	}
	if got, err := chooseUsers(id, all); err == nil {
		t.Errorf("%#x is given twice", got)
	}
	delete(all, firstUsers)
	if got, err := chooseUsers(id, all); err != nil || got != firstUsers {
		t.Errorf("the only ones left: %#x, %v", got, err)
	}
}

// TestOwnUsers: the user namespace of a pod owns its other namespaces, and no two pods have the
// same user IDs.
func TestOwnUsers(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	p := testPod("own")
	p.Spec.HostUsers, p.Spec.Containers = new(false), make([]v1.Container, 2)
	b := prepare(t, s, p)
	if b.Details.FirstUser != 0 {
		t.Errorf("users before it is made: %+v", b.Details)
	}
	first, err := s.Create(t.Context(), p, b)
	if err != nil {
		t.Fatal(err)
	}
	paths := s.Paths(first)
	if !s.Ready(first) || paths.FirstUser == 0 || paths.FirstUser != first.Details.FirstUser {
		t.Fatalf("%+v, %+v", first, paths)
	}
	if paths.User != filepath.Join(s.dir.path(first.ID), "user") || !pinned(paths.User) {
		t.Errorf("the users' namespace is not pinned: %+v", paths)
	}
	info, err := os.Stat(paths.Shm)
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != paths.FirstUser {
		t.Errorf("the shared memory is not the pod's: %v, %v", info, err)
	}
	// Another podrun's sandbox whose ID begins alike would have the same ones.
	other, _ := newStore(t, run)
	b = prepare(t, other, p)
	b.ID = first.ID[:8] + b.ID[8:]
	second, err := other.Create(t.Context(), p, b)
	if err != nil {
		t.Fatal(err)
	}
	if second.Details.FirstUser == first.Details.FirstUser {
		t.Errorf("both have %d", first.Details.FirstUser)
	}
	remove(t, s, first)
	if taken, err := s.dir.usersInUse(); err != nil || len(taken) != 1 || !taken[second.Details.FirstUser] {
		t.Errorf("taken %v, %v", taken, err)
	}
	remove(t, s, second)
	bare(t, run, n)
}
