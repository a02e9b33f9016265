// Package cpus chooses the CPUs that a container gets for itself: whole sockets and whole cores first, so that its
// neighbours share as few caches and execution units with it as possible. It does not know containers.
//
// Begin reading at Topology.Choose.
package cpus

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Topology says where each CPU is.
type Topology map[int]Position

// Position is where a CPU is: its socket, and its core, which is named by the lowest CPU on it.
type Position struct{ Socket, Core int }

// directory has a directory of each CPU, cpu0 for example.
const directory = "/sys/devices/system/cpu"

// Read reads where the CPUs are. A CPU of which the kernel says nothing counts as a core of its own on socket 0.
func Read(all cpuset.CPUSet) (Topology, error) { return readFrom(directory, all) }

func readFrom(dir string, all cpuset.CPUSet) (Topology, error) {
	out := Topology{}
	for _, id := range all.List() {
		at := filepath.Join(dir, "cpu"+strconv.Itoa(id), "topology")
		socket, err := os.ReadFile(filepath.Join(at, "physical_package_id")) // trusted: the kernel's
		if os.IsNotExist(err) {
			out[id] = Position{Core: id}
			continue
		}
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(strings.TrimSpace(string(socket)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		text, err := os.ReadFile(filepath.Join(at, "thread_siblings_list")) // trusted: the kernel's
		if err != nil {
			return nil, err
		}
		siblings, err := cpuset.Parse(strings.TrimSpace(string(text)))
		if err != nil || siblings.IsEmpty() {
			return nil, fmt.Errorf("%s: %q is not a list of CPUs", at, text)
		}
		out[id] = Position{Socket: number, Core: siblings.List()[0]}
	}
	return out, nil
}

// Choose returns n of the free CPUs, or all of them if there are fewer. Sockets and cores of which a CPU is not free
// are filled first.
//
// Source: https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/#static-policy
func (t Topology) Choose(free cpuset.CPUSet, n int) cpuset.CPUSet {
	var taken []int
	rest := free
	take := func(some []int) {
		taken, rest = append(taken, some...), rest.Difference(cpuset.New(some...))
	}
	socket := func(id int) int { return t[id].Socket }
	core := func(id int) int { return t[id].Core }
	size, threads := count(t, socket), count(t, core)
	for {
		left, sockets, cores := n-len(taken), group(rest, socket), group(rest, core)
		// Whole ones of a size that is not exceeded; then single ones.
		whole := func(all map[int][]int, sizes map[int]int) []int {
			var out []int
			for _, key := range ordered(all, func(a, b []int) int {
				return cmp.Compare(len(sockets[socket(a[0])]), len(sockets[socket(b[0])]))
			}) {
				if len(all[key]) == sizes[key] && sizes[key] <= left && len(out) == 0 {
					out = all[key]
				}
			}
			return out
		}
		if left <= 0 || rest.IsEmpty() {
			return cpuset.New(taken...)
		}
		if some := whole(sockets, size); some != nil {
			take(some)
			continue
		}
		if some := whole(cores, threads); some != nil {
			take(some)
			continue
		}
		first := ordered(cores, func(a, b []int) int {
			return cmp.Or(
				cmp.Compare(len(a), len(b)),
				cmp.Compare(len(sockets[socket(a[0])]), len(sockets[socket(b[0])])),
			)
		})[0]
		take(cores[first][:1])
	}
}

// count returns how many CPUs each group has, free or not.
func count(t Topology, of func(id int) int) map[int]int {
	out := map[int]int{}
	for id := range t {
		out[of(id)]++
	}
	return out
}

// group returns the CPUs of each group, in their order.
func group(set cpuset.CPUSet, of func(id int) int) map[int][]int {
	out := map[int][]int{}
	for _, id := range set.List() {
		out[of(id)] = append(out[of(id)], id)
	}
	return out
}

// ordered returns the keys of groups in an order, and equal ones by their numbers.
func ordered(all map[int][]int, by func(a, b []int) int) []int {
	var keys []int
	for key := range all {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b int) int { return cmp.Or(by(all[a], all[b]), cmp.Compare(a, b)) })
	return keys
}
