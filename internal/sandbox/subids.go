package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/sys"
)

// idRange are IDs that others may use in a user namespace: a user of the machine, another podrun. With the same IDs
// they could signal a pod's processes and read its files.
type idRange struct{ first, count uint64 }

// overlaps reports whether some of the IDs of a pod are in the range.
func (r idRange) overlaps(users uint32) bool {
	return uint64(users) < r.first+r.count && r.first < uint64(users)+oci.Users
}

// subordinateFiles are the files of subordinate IDs, see subuid(5).
func subordinateFiles() []string { return []string{"/etc/subuid", "/etc/subgid"} }

// subordinateIDs returns the ranges in files of subordinate IDs, which may be missing. Lines without a range are
// passed over, as by the programs that use them.
func subordinateIDs(files []string) ([]idRange, error) {
	var all []idRange
	for _, path := range files {
		text, err := sys.ReadSettings(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading which IDs belong to users of the machine: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			parts := strings.Split(strings.TrimSpace(line), ":")
			if len(parts) != 3 {
				continue
			}
			// As strtoul(3) reads them: also in hexadecimal, or in octal.
			first, err := strconv.ParseUint(strings.TrimSpace(parts[1]), 0, 32)
			if err != nil {
				continue
			}
			count, err := strconv.ParseUint(strings.TrimSpace(parts[2]), 0, 64)
			if err != nil {
				continue
			}
			all = append(all, idRange{first, min(count, math.MaxUint32)})
		}
	}
	return all, nil
}

// mappedIDs returns the IDs that user namespaces of the running processes have, according to the kernel. proc is where
// its file system is.
func mappedIDs(proc string) ([]idRange, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "uid_map"))
	if err != nil {
		return nil, err
	}
	all, own := map[idRange]bool{}, idsIn(filepath.Join(proc, "self", "uid_map"), 1)
	for _, file := range files {
		for _, r := range idsIn(file, 1) {
			// The others are the machine's own and of its users. Of this namespace the IDs are its parent's.
			if r.first > 0 && r.first+r.count > firstInContainer && !slices.Contains(own, r) {
				all[r] = true
			}
		}
	}
	return slices.Collect(maps.Keys(all)), nil
}

// idsIn returns a column of the ranges in a file uid_map: 0 for the IDs inside of the user namespace, 1 for those
// outside. It is empty if the process has ended.
func idsIn(file string, column int) (all []idRange) {
	text, _ := os.ReadFile(file) // trusted: the kernel's
	for line := range strings.Lines(string(text)) {
		var first [2]uint64
		var count uint64
		if _, err := fmt.Sscan(line, &first[0], &first[1], &count); err == nil {
			all = append(all, idRange{first[column], count})
		}
	}
	return all
}
