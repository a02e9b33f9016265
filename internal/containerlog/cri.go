package containerlog

import (
	"bytes"
	"time"
)

const (
	// maxPart is the longest piece of a line in one entry, as the CRI runtimes have it.
	maxPart = 16 << 10
	// stampLayout has a fixed width, so that an entry's length does not depend on when it is converted.
	stampLayout = "2006-01-02T15:04:05.000000000Z"
	// outLimit ends a stream's conversion early: empty lines grow fortyfold.
	outLimit = 1 << 20
)

// stream is one of the two that a container writes to.
type stream int

const (
	stdout stream = iota
	stderr
)

func (s stream) String() string { return [...]string{"stdout", "stderr"}[s] }

// entries say how lines become entries.
type entries struct {
	stream stream
	at     time.Time
	last   bool // nothing will follow
	space  int  // no further entry is begun once so many bytes were appended
}

// appendEntries appends raw's lines to dst as entries and returns how much of raw they took. A line
// that is not complete yet is left, but for parts of maxPart bytes; with last, what is left follows as
// a part without end, which keeps a reader from adding a newline that was never written.
func appendEntries(dst, raw []byte, e entries) ([]byte, int) {
	head := e.at.UTC().AppendFormat(nil, stampLayout)
	head = append(append(append(head, ' '), e.stream.String()...), ' ')
	taken, limit := 0, len(dst)+e.space
	for len(dst) < limit {
		rest := raw[taken:]
		var message []byte
		tag, skip := byte('P'), 0
		if n := bytes.IndexByte(rest[:min(len(rest), maxPart+1)], '\n'); n >= 0 {
			message, tag, skip = rest[:n], 'F', 1
		} else if len(rest) > maxPart {
			message = rest[:maxPart]
		} else if e.last && len(rest) > 0 {
			message = rest
		} else {
			break
		}
		dst = append(append(dst, head...), tag, ' ')
		dst = append(append(dst, message...), '\n')
		taken += len(message) + skip
	}
	return dst, taken
}

// entry is one line of a log in CRI format.
type entry struct {
	stamp   []byte
	stream  stream
	part    bool // more of the same line follows
	message []byte
}

// parse splits a line without its newline; false when it is not in CRI format.
func parse(line []byte) (entry, bool) {
	var e entry
	stamp, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return e, false
	}
	name, rest, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return e, false
	}
	switch string(name) {
	case "stdout":
		e.stream = stdout
	case "stderr":
		e.stream = stderr
	default:
		return e, false
	}
	tags, message, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		// An empty message may have lost its blank to an editor.
		tags, message = rest, nil
	}
	// Tags are a list; only the first is defined.
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	e.stamp, e.message = stamp, message
	switch string(tag) {
	case "F":
	case "P":
		e.part = true
	default:
		return e, false
	}
	return e, true
}
