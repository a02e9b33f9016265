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
	all := map[idRange]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file) // trusted: the kernel's
		if err != nil {
			continue // the process has ended
		}
		for line := range strings.Lines(string(text)) {
			var inside, first, count uint64
			if _, err := fmt.Sscan(line, &inside, &first, &count); err == nil && first >= firstUsers {
				all[idRange{first, count}] = true
			}
		}
	}
	return slices.Collect(maps.Keys(all)), nil
}
