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

// span are the indexes from first to last.
type span struct{ first, last int }

// spans returns the indexes in a text. What is no index is left out. The text may say more of them than there is memory
// for.
func spans(text string) (all []span) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := strconv.ParseInt(first, 10, 32)
		to := from
		if ranged && err == nil {
			to, err = strconv.ParseInt(last, 10, 32)
		}
		if err == nil && from >= 0 && from <= to {
			all = append(all, span{int(from), int(to)})
		}
	}
	return all
}

// size returns the number of indexes in spans that do not overlap.
func size(all []span) (n int) {
	for _, s := range all {
		n += s.last - s.first + 1
	}
	return n
}

// in returns how many indexes of the set are in spans that do not overlap.
func (s set) in(all []span) (n int) {
	for index := range s {
		if slices.ContainsFunc(all, func(s span) bool { return s.first <= index && index <= s.last }) {
			n++
		}
	}
	return n
}

// parse returns the indexes in a text that podrun has written: those of pods that there were.
func parse(text string) set {
	all := set{}
	for _, s := range spans(text) {
		for i := s.first; i <= s.last; i++ {
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
