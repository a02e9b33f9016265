package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/pkg/kernelversion"
)

const controllerHugePages = "hugetlb"

// pagesDir has a directory for each size of huge pages that the machine supports.
const pagesDir = "/sys/kernel/mm/hugepages"

// LimitsHugePages reports whether this machine's cgroups can limit the use of huge pages.
func (t *Tree) LimitsHugePages() bool {
	if t.unified == "" {
		return t.mounts[controllerHugePages] != ""
	}
	text, err := os.ReadFile(filepath.Join(t.unified, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(text)), controllerHugePages)
}

// LimitsReservations reports whether this machine's cgroups can limit the reservation of huge pages, too, on version 2.
func (t *Tree) LimitsReservations() bool {
	if t.unified == "" || !t.LimitsHugePages() {
		return false
	}
	// The files are where the controller is since Linux 5.7. They cannot be seen before a cgroup has the controller.
	has, err := kernelversion.GreaterEqualThan(kernelversion.KernelVersion{Kernel: 5, Major: 7})
	return err == nil && has
}

// HugePages returns how much memory in huge pages the machine has for its processes now, in bytes
// by the pages' size in bytes. It omits sizes of which there are none.
func HugePages() (map[int64]int64, error) { return hugePagesIn(pagesDir) }

func hugePagesIn(dir string) (map[int64]int64, error) {
	sizes, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading huge pages: %w", err)
	}
	out := map[int64]int64{}
	for _, e := range sizes {
		text, ok := strings.CutSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB")
		kilobytes, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			continue
		}
		var number int64
		for _, file := range []string{"nr_hugepages", "nr_overcommit_hugepages"} {
			text, err := os.ReadFile(filepath.Join(dir, e.Name(), file))
			if err != nil {
				return nil, fmt.Errorf("reading huge pages: %w", err)
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("reading huge pages: %w", err)
			}
			number += n
		}
		if number > 0 {
			out[kilobytes<<10] = number * kilobytes << 10
		}
	}
	return out, nil
}
