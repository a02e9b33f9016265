package sandbox

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
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

// A pod with users of its own: its namespaces are theirs, no two pods' are the same, and a sandbox that is made
// again has the ones that it had.
func TestOwnUsers(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	own := func(name string) *v1.Pod {
		p := testPod(name)
		p.Spec.HostUsers, p.Spec.Containers = new(false), make([]v1.Container, 2)
		return p
	}
	var first []uint32
	for _, name := range []string{"a", "b"} {
		made, err := s.Create(t.Context(), own(name), 0, "")
		if err != nil {
			t.Fatal(err)
		}
		records, err := s.Of(pod.KeyOf(own(name)))
		if err != nil || len(records) != 1 || !records[0].Ready || records[0].FirstUser == 0 {
			t.Fatalf("%+v, %v", records, err)
		}
		r := records[0]
		first = append(first, r.FirstUser)
		if r.User != filepath.Join(s.path(made.ID), "user") || !pinned(r.User) {
			t.Errorf("the users' namespace is not pinned: %+v", r)
		}
		info, err := os.Stat(r.Shm)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != r.FirstUser {
			t.Errorf("the shared memory is not the pod's: %v, %v", info, err)
		}
		// The record is lost, as by a kill: the intent still says which they are.
		if err := os.Remove(filepath.Join(s.path(made.ID), recordName)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), own(name), 0, ""); err != nil {
			t.Fatal(err)
		}
		if again, err := s.Of(pod.KeyOf(own(name))); err != nil || again[0].FirstUser != r.FirstUser {
			t.Errorf("%+v, %v, and had %d", again, err, r.FirstUser)
		}
	}
	if first[0] == first[1] {
		t.Errorf("both have %d", first[0])
	}
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if err := s.Remove(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
	}
	bare(t, run, n)
}
