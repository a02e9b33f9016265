package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// set is a set of indexes. Its text is that of Kubernetes, such as 1,3-5,7.
type set map[int]bool

// parse returns the indexes in a text. What is no index is left out.
func parse(text string) set {
	all := set{}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if ranged && err == nil {
			to, err = strconv.Atoi(last)
		}
		for i := from; err == nil && i <= to; i++ {
			all[i] = true
		}
	}
	return all
}

// String implements fmt.Stringer.
func (s set) String() string {
	var parts []string
	sorted := slices.Sorted(maps.Keys(s))
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, strconv.Itoa(sorted[i]))
		case 1:
			parts = append(parts, strconv.Itoa(sorted[i]), strconv.Itoa(sorted[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Indexes returns the indexes in a text such as 1,3-5,7.
func Indexes(text string) map[int]bool { return parse(text) }
