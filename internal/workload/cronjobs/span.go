package cronjobs

import "slices"

// maxSpans is how many spans are recorded.
const maxSpans = 100

// Span is a sequence of times that were started one after the other, or may have been. None between its ends starts
// again.
type Span struct {
	// First and Last are in minutes since the epoch.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// has reports that a minute is in one of the spans.
func has(spans []Span, n int64) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.First <= n && n <= s.Last })
}

// add adds a minute to spans, which are in ascending order. previous is the minute of the time before it: a span
// that ends with it goes on. Of too many spans those that are nearest to each other become one. So what a clock started
// that was far ahead never becomes one with what is started when it is right again, and the times between start.
func add(spans []Span, n, previous int64) []Span {
	if has(spans, n) {
		return spans
	}
	at := 0
	for at < len(spans) && spans[at].First < n {
		at++
	}
	if at > 0 && (spans[at-1].Last == previous || spans[at-1].Last == n-1) {
		spans[at-1].Last = n
		return spans
	}
	spans = slices.Insert(spans, at, Span{First: n, Last: n})
	if len(spans) <= maxSpans {
		return spans
	}
	nearest := 0
	for i := range len(spans) - 1 {
		if spans[i+1].First-spans[i].Last < spans[nearest+1].First-spans[nearest].Last {
			nearest = i
		}
	}
	spans[nearest].Last = spans[nearest+1].Last
	return slices.Delete(spans, nearest+1, nearest+2)
}
