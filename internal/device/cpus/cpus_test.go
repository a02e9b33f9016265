package cpus

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/utils/cpuset"
)

// machine has sockets with cores of two threads each, which are numbered as x86 does: first all first threads.
func machine(sockets, cores int) (Topology, cpuset.CPUSet) {
	t, all := Topology{}, cpuset.New()
	for id := range 2 * sockets * cores {
		first := id % (sockets * cores)
		t[id] = Position{Socket: first / cores, Core: first}
		all = all.Union(cpuset.New(id))
	}
	return t, all
}

func TestChoose(t *testing.T) {
	t.Parallel()
	large, all := machine(2, 4) // socket 0: 0-3,8-11; socket 1: 4-7,12-15
	for _, c := range []struct {
		free string
		n    int
		want string
	}{
		{"0-15", 8, "0-3,8-11"},        // a whole socket
		{"1-15", 8, "4-7,12-15"},       // the whole one, though the other is fuller
		{"0-15", 2, "0,8"},             // a whole core
		{"1-15", 2, "1,9"},             // of the socket that is in use
		{"1-15", 1, "8"},               // half a core that is in use
		{"0-15", 1, "0"},               //
		{"0-15", 3, "0-1,8"},           // a core and a half
		{"1-15", 3, "1,8-9"},           // a core, and the half that is left over
		{"0-15", 10, "0-4,8-12"},       // a socket and a core
		{"0-2,4-6", 2, "0-1"},          // no whole cores: of one socket
		{"2,3", 5, "2-3"},              // all there are
		{"", 1, ""},                    //
		{"0-15", 16, "0-15"},           //
		{"0-7", 4, "0-3"},              // no whole cores
		{"3,11,4-7,12-15", 2, "3,11"},  // a whole core of the fuller socket
		{"3,4-7,12-15", 2, "4,12"},     // a whole core rather than halves of a fuller socket
		{"0-15", 0, ""},                //
		{"1-7,9-15", 14, "1-7,9-15"},   //
		{"1-7,9-15", 8, "4-7,12-15"},   //
		{"1-7,9-15", 9, "1,4-7,12-15"}, // a socket and half a core
	} {
		free, err := cpuset.Parse(c.free)
		if err != nil {
			t.Fatal(err)
		}
		if got := large.Choose(free, c.n); got.String() != c.want {
			t.Errorf("%d of %s: %s, want %s", c.n, c.free, got, c.want)
		}
	}
	for n := range all.Size() + 3 { // any number, one after another, until all are taken
		rest := all
		for !rest.IsEmpty() && n > 0 {
			got := large.Choose(rest, n)
			if got.Size() != min(n, rest.Size()) || !got.IsSubsetOf(rest) {
				t.Fatalf("%d of %s: %s", n, rest, got)
			}
			rest = rest.Difference(got)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(id int, file, text string) {
		at := filepath.Join(dir, fmt.Sprint("cpu", id), "topology")
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for id, siblings := range map[int]string{0: "0,2\n", 1: "1,3\n", 2: "0,2\n", 3: "1,3\n"} {
		put(id, "physical_package_id", "7\n")
		put(id, "thread_siblings_list", siblings)
	}
	got, err := readFrom(dir, cpuset.New(0, 1, 2, 3, 4))
	if err != nil || len(got) != 5 || got[2] != (Position{7, 0}) || got[3] != (Position{7, 1}) || got[4] != (Position{0, 4}) {
		t.Errorf("%v, %v", got, err)
	}
	for file, text := range map[string]string{"thread_siblings_list": "x", "physical_package_id": "y"} {
		put(2, file, text)
		if _, err := readFrom(dir, cpuset.New(2)); err == nil {
			t.Errorf("%s: %q is taken", file, text)
		}
	}
	if online, err := os.ReadFile(directory + "/online"); err == nil {
		if all, err := cpuset.Parse(string(online[:len(online)-1])); err != nil {
			t.Error(err)
		} else if got, err := Read(all); err != nil || len(got) != all.Size() {
			t.Errorf("this machine: %v, %v", got, err)
		}
	}
}
