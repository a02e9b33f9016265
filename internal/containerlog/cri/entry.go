package containerlog

import (
	"bytes"
	"time"
)

const (
	// maxPart is the most bytes of a line in one entry, as in the CRI runtimes.
	maxPart = 16 << 10
	// stampLayout has a fixed width, so that the length of an entry does not depend on when it is
	// converted.
	stampLayout = "2006-01-02T15:04:05.000000000Z"
	// outLimit ends the conversion of a stream's slice early, because an entry of an empty line is
	// about forty times as long as the line.
	outLimit = 1 << 20
)

// stream is one of the two streams that a container writes to.
type stream int

const (
	stdout stream = iota
	stderr
)

func (s stream) String() string { return [...]string{"stdout", "stderr"}[s] }

// entries are the parameters with which lines become entries.
type entries struct {
	stream stream
	at     time.Time
	last   bool // no more output follows
	space  int  // no further entry begins after so many bytes were appended
}

// appendEntries appends raw's lines to dst as entries and returns how many bytes of raw they used.
// An incomplete line is left for later, except parts of maxPart bytes; with last, the rest follows
// as a part without an end, so that no reader adds a newline that the container did not write.
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
	part    bool // the line continues in the next entry of the stream
	message []byte
}

// parse splits a line of a log, without its newline; false if it is not in CRI format.
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
		// An editor may have removed the trailing blank of an empty message.
		tags, message = rest, nil
	}
	// Tags are a list; only the first one is defined.
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
