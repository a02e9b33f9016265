// Package cri reads and formats logs in the format of the CRI: a file of entries, one for each line
// or part of a line, and the segments into which rotation renamed earlier files. It works on any log
// in this format, whoever wrote it.
//
// Begin reading at Read, Segments and AppendEntries.
package cri

import (
	"bytes"
	"time"
)

const (
	// maxMessage is the most bytes of a line in one entry, as in the CRI runtimes.
	maxMessage = 16 << 10
	// maxEntry is the most bytes of an entry that are in memory at the same time. podrun and the CRI runtimes write
	// shorter ones; of a longer one, the first maxEntry bytes say what it is, and its message is read piece by piece.
	maxEntry = 64 << 10
	// timeLayout is the layout of an entry's time. It has a fixed width, so that the length of an entry
	// does not depend on when it is converted.
	timeLayout = "2006-01-02T15:04:05.000000000Z"
)

// Stream is one of the two streams that a container writes to.
type Stream int

// The streams.
const (
	Stdout Stream = iota
	Stderr
)

// String returns the name that the stream has in a log.
func (s Stream) String() string { return [...]string{"stdout", "stderr"}[s] }

// EntryOptions are the parameters with which lines become entries.
type EntryOptions struct {
	Stream Stream
	At     time.Time
	Last   bool // no more output follows
	Space  int  // no further entry begins after so many bytes were appended
}

// AppendEntries appends raw's lines to dst as entries and returns how many bytes of raw they used.
// An incomplete line is left for later, except parts of maxMessage bytes; with Last, the rest follows
// as a part without an end, so that no reader adds a newline that the container did not write.
func AppendEntries(dst, raw []byte, o EntryOptions) ([]byte, int) {
	head := o.At.UTC().AppendFormat(nil, timeLayout)
	head = append(append(append(head, ' '), o.Stream.String()...), ' ')
	used, limit := 0, len(dst)+o.Space
	for len(dst) < limit {
		rest := raw[used:]
		var message []byte
		tag, skip := byte('P'), 0
		if n := bytes.IndexByte(rest[:min(len(rest), maxMessage+1)], '\n'); n >= 0 {
			message, tag, skip = rest[:n], 'F', 1
		} else if len(rest) > maxMessage {
			message = rest[:maxMessage]
		} else if o.Last && len(rest) > 0 {
			message = rest
		} else {
			break
		}
		dst = append(append(dst, head...), tag, ' ')
		dst = append(append(dst, message...), '\n')
		used += len(message) + skip
	}
	return dst, used
}

// entry is one line of a log in CRI format.
type entry struct {
	stamp   []byte
	stream  Stream
	partial bool // the line continues in the next entry of the stream
	message []byte
}

// parseAny is parse of a line of any length. A line that is not in CRI format counts as one of stdout.
func parseAny(line []byte) entry {
	e, ok := parse(line[:min(len(line), maxEntry)])
	if !ok {
		return entry{stream: Stdout}
	}
	return e
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
		e.stream = Stdout
	case "stderr":
		e.stream = Stderr
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
		e.partial = true
	default:
		return e, false
	}
	return e, true
}
