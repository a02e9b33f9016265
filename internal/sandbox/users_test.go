package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test"
)

func TestChooseUsers(t *testing.T) {
	t.Parallel()
	const id = "ffffffff00000000ffffffff00000000"
	own := []idRange{{0, 1<<32 - 1}}
	first, err := chooseUsers(id, own, nil, nil)
	if err != nil || first < firstUsers || first >= endOfUsers || first%65536 != 0 {
		t.Fatalf("%#x, %v", first, err)
	}
	second, err := chooseUsers(id, own, map[uint32]bool{first: true}, nil)
	if err != nil || second == first {
		t.Errorf("%#x again: %v", second, err)
	}
	all := map[uint32]bool{}
	for users := uint32(firstUsers); users < endOfUsers; users += 65536 {
		all[users] = true
	}
	if got, err := chooseUsers(id, own, all, nil); err == nil {
		t.Errorf("%#x is given twice", got)
	}
	delete(all, firstUsers)
	if got, err := chooseUsers(id, own, all, nil); err != nil || got != firstUsers {
		t.Errorf("the only ones left: %#x, %v", got, err)
	}
	// In a container with fewer IDs, there are others.
	if got, err := chooseUsers(id, []idRange{{0, 1_000_000_000}}, nil, nil); err != nil || got < 0x80000 || got >= 0x70000000 {
		t.Errorf("in a container: %#x, %v", got, err)
	}
	// A user of the machine has some of them.
	for _, given := range []idRange{{uint64(first) + 65535, 1}, {uint64(first) - 10, 11}, {0, uint64(first) + 1}, {uint64(first) + 1, 2}} {
		if got, err := chooseUsers(id, own, nil, []idRange{given}); err != nil || got == first || given.overlaps(got) {
			t.Errorf("%v: %#x, %v", given, got, err)
		}
	}
	for _, given := range []idRange{{uint64(first) + 65536, 9}, {uint64(first) - 10, 10}, {uint64(first), 0}} {
		if got, err := chooseUsers(id, own, nil, []idRange{given}); err != nil || got != first {
			t.Errorf("%v: %#x, %v", given, got, err)
		}
	}
}

func TestSubordinateIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "subuid")
	text := "a:100000:65536\n\n# no\nb:x:1\nc:4294967296:1\nd:1:99999999999999999999\nroot:1000000:1000000000\ne:1:18446744073709551615\nf:0x80000: 020"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := subordinateIDs([]string{path, filepath.Join(dir, "none")})
	want := []idRange{{100000, 65536}, {1000000, 1000000000}, {1, 1<<32 - 1}, {0x80000, 16}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := subordinateIDs([]string{dir}); err == nil {
		t.Error("a directory is a file")
	}
}

func TestMappedIDs(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	for pid, text := range map[string]string{
		"1": "         0          0 4294967295\n", "20": "         0 2000289792      65536\n     70000     100000       1000\n",
		"21": "         0 2000289792      65536\n", "22": "0 100000 1000000000\n", "30": "", "31": "no numbers", "self": "0 1100000 2000000000\n", "50": "0 1100000 2000000000\n",
	} {
		test.Must(t, os.Mkdir(filepath.Join(proc, pid), 0o700))
		test.Must(t, os.WriteFile(filepath.Join(proc, pid, "uid_map"), []byte(text), 0o600))
	}
	test.Must(t, os.Mkdir(filepath.Join(proc, "40"), 0o700)) // it has ended
	got, err := mappedIDs(proc)
	slices.SortFunc(got, func(a, b idRange) int { return int(a.first) - int(b.first) })
	if want := []idRange{{100000, 1000000000}, {2000289792, 65536}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
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
	// One of another run directory knows them by the kernel alone.
	sleeper := exec.Command("sleep", "inf")
	mapping := []syscall.SysProcIDMap{{HostID: int(first.Details.FirstUser), Size: 65536}}
	sleeper.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: mapping, GidMappings: mapping, Pdeathsig: syscall.SIGKILL,
	}
	test.Must(t, sleeper.Start())
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	third := t.TempDir()
	apart, _ := newStore(t, third)
	b = prepare(t, apart, p)
	b.ID = first.ID[:8] + b.ID[8:]
	stranger, err := apart.Create(t.Context(), p, b)
	if err != nil {
		t.Fatal(err)
	}
	if stranger.Details.FirstUser == first.Details.FirstUser {
		t.Errorf("another podrun's pod has them too: %d", stranger.Details.FirstUser)
	}
	remove(t, apart, stranger)
	remove(t, s, first)
	if taken, err := s.dir.usersInUse(); err != nil || len(taken) != 1 || !taken[second.Details.FirstUser] {
		t.Errorf("taken %v, %v", taken, err)
	}
	remove(t, s, second)
	bare(t, run, n)
}
