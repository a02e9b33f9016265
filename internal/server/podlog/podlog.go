// Package podlog merges the logs of a pod's containers by time, once or as they are written.
//
// Each container's log is read by its own goroutine into a bounded buffer, and its reader waits while that is full. So
// a container that writes fast, and a client that reads slowly, take no more memory than that, and hold up nobody else.
//
// The package reads no files and knows no HTTP: who calls it gives it a function that reads the log of one container.
// Begin reading at Merge.
package podlog

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/status/summary"
)

const (
	// All selects all containers of a pod. No container has this name.
	All = "*"
	// Notice is the Stream of a line that no container has written.
	Notice = "-"

	// buffered is how many bytes of a log wait to be merged before its reader waits.
	buffered = 64 << 10
	// batchBytes is about how many bytes are passed on at once.
	batchBytes = 32 << 10
	// lineOverhead is what a buffered line takes beside its text.
	lineOverhead = 64
	// pollPeriod is how often it is checked whether there is a next instance.
	pollPeriod = time.Second / 2
)

// Line is a line of a log, without its end.
type Line struct {
	Time      string // as RFC 3339; "" if it is not known
	Container string
	Stream    string // stdout, stderr or Notice
	Text      string
}

// AppendTo appends the line to dst: time, container, stream and text, each after a blank.
func (l Line) AppendTo(dst []byte) []byte {
	for _, word := range []string{l.Time, l.Container, l.Stream} {
		dst = append(append(dst, word...), ' ')
	}
	return append(append(dst, l.Text...), '\n')
}

// Request is the request for the log of an instance.
type Request struct {
	Container string
	// Run is the ID of the instance; "" if the log is not followed: whoever reads knows which one is wanted.
	Run string
	// Later: the log of an earlier instance was delivered, so all of this one is wanted.
	Later bool
	// CaughtUp is called whenever all that the log has is written, if it is followed.
	CaughtUp func()
	// Out and ErrOut get the lines of the two streams, each line with its time before it.
	Out, ErrOut io.Writer
}

// Options select what Merge reads.
type Options struct {
	Containers []string
	// Read reads the log of an instance: of one that is followed until it has ended, and then without an error if there
	// is no log.
	Read func(context.Context, Request) error
	// Pod returns the pod as it is, or an error if there is none any more. nil: the logs are not followed.
	Pod func() (*v1.Pod, error)
}

// Containers returns the names of the containers of a pod that chosen selects: one, or with All or "" all.
func Containers(p *v1.Pod, chosen string) (names []string) {
	for _, r := range summary.InitialFirst(summary.Roles(p)) {
		if name := r.Container.Name; chosen == "" || chosen == All || chosen == name {
			names = append(names, name)
		}
	}
	return names
}

// runsOf returns the IDs of the instances of a pod's containers of which there may be a log, the oldest first.
func runsOf(p *v1.Pod) map[string][]string {
	runs := map[string][]string{}
	for _, r := range summary.Roles(p) {
		if s := r.Status; s != nil && s.ContainerID != "" {
			if t := s.LastTerminationState.Terminated; t != nil && t.ContainerID != s.ContainerID {
				runs[r.Container.Name] = append(runs[r.Container.Name], t.ContainerID)
			}
			runs[r.Container.Name] = append(runs[r.Container.Name], s.ContainerID)
		}
	}
	return runs
}

// Write is Merge to a writer, in the format of Line.AppendTo.
func Write(ctx context.Context, o Options, out io.Writer) error {
	var text []byte
	return Merge(ctx, o, func(all []Line) error {
		text = text[:0]
		for _, line := range all {
			text = line.AppendTo(text)
		}
		_, err := out.Write(text)
		return err
	})
}

// Merge passes the lines of all logs to write, by their time, until all logs end; followed ones end with
// the pod. A line of a followed log waits until every other log has one, or has been read to its end
// after that line was read. write may block, and does not keep the slice. Merge fails if ctx ends, if
// write does, or if no log can be read.
func Merge(ctx context.Context, o Options, write func([]Line) error) error {
	ctx, cancel := context.WithCancel(ctx)
	m := &merger{Options: o, ctx: ctx}
	m.changed.L = &m.mu
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel() // the readers end
	context.AfterFunc(ctx, m.wake)
	for _, name := range o.Containers {
		m.logs = append(m.logs, &source{merger: m, container: name})
	}
	for _, s := range m.logs {
		reading.Go(s.run)
	}
	if o.Pod != nil {
		reading.Go(m.poll)
	}
	var lines []Line
	for {
		var done bool
		if lines, done = m.next(lines[:0]); done {
			return m.err()
		}
		if err := write(lines); err != nil {
			return err
		}
	}
}

type merger struct {
	Options
	ctx  context.Context
	logs []*source

	mu      sync.Mutex
	changed sync.Cond
	// count numbers what happens.
	count uint64
	// runs are the instances at the last poll, the polls-th one; gone: there are none any more.
	runs  map[string][]string
	polls int
	gone  bool
	// waiting is how many logs wait for a poll.
	waiting int
}

// source is a container's log.
type source struct {
	*merger
	container string

	// Protected by the merger's mu.
	queue []batch // none is empty
	bytes int
	last  string // the time of the last line
	// caughtUp is when the log was last read to its end.
	caughtUp uint64
	// idle: the container has no instance whose log is read. ended: it has none any more.
	idle, ended bool
	err         error
}

// batch are lines that wait, and when they were read.
type batch struct {
	lines []Line
	at    uint64
}

func (m *merger) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed.Broadcast()
}

// poll reads which instances there are, as long as a log waits for one, until ctx or the pod ends.
func (m *merger) poll() {
	for m.awaited() {
		p, err := m.Pod()
		m.mu.Lock()
		if m.gone = err != nil; !m.gone {
			m.runs = runsOf(p)
		}
		m.polls++
		m.changed.Broadcast()
		m.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case <-m.ctx.Done():
			return
		case <-time.After(pollPeriod):
		}
	}
}

// awaited waits until a log waits for an instance; false if ctx has ended.
func (m *merger) awaited() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.waiting == 0 && m.ctx.Err() == nil {
		m.changed.Wait()
	}
	return m.ctx.Err() == nil
}

// next waits for lines that are due and appends them; done: there are no more.
func (m *merger) next(lines []Line) (more []Line, done bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.ctx.Err() == nil {
		for size := 0; size < batchBytes; {
			s := m.due()
			if s == nil {
				break
			}
			line := s.pop()
			lines = append(lines, line)
			size += lineOverhead + len(line.Text)
		}
		if len(lines) > 0 {
			m.changed.Broadcast()
			return lines, false
		}
		if !slices.ContainsFunc(m.logs, func(s *source) bool { return !s.ended }) {
			return nil, true
		}
		m.changed.Wait()
	}
	return nil, true
}

// pop removes the first line of the queue and returns it.
func (s *source) pop() Line {
	first := &s.queue[0]
	line := first.lines[0]
	s.bytes -= lineOverhead + len(line.Text)
	if first.lines = first.lines[1:]; len(first.lines) == 0 {
		s.queue = s.queue[1:]
	}
	return line
}

// due returns the log whose first line is the next one; nil if that is not certain yet.
func (m *merger) due() (first *source) {
	for _, s := range m.logs {
		if len(s.queue) > 0 && (first == nil || s.queue[0].lines[0].Time < first.queue[0].lines[0].Time) {
			first = s
		}
	}
	if first == nil {
		return nil
	}
	for _, s := range m.logs {
		if len(s.queue) == 0 && !s.idle && !s.ended && s.caughtUp < first.queue[0].at {
			return nil
		}
	}
	return first
}

// err returns why there is nothing of any log.
func (m *merger) err() error {
	if err := context.Cause(m.ctx); err != nil {
		return err
	}
	var all []error
	for _, s := range m.logs {
		if s.err == nil {
			return nil
		}
		all = append(all, s.err)
	}
	return errors.Join(all...)
}

// run reads the log of a container to its end.
func (s *source) run() {
	var err error
	if s.Pod == nil {
		err = s.read(Request{})
	} else {
		s.follow()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.err = true, err
	s.changed.Broadcast()
}

// follow reads the logs of the newest instance and of those after it.
func (s *source) follow() {
	var before []string
	for later, polls := false, 0; ; {
		runs, n, more := s.awaitPoll(polls)
		if !more {
			return
		}
		polls = n
		fresh := slices.DeleteFunc(slices.Clone(runs), func(id string) bool { return slices.Contains(before, id) })
		if !later && len(fresh) > 1 {
			fresh = fresh[len(fresh)-1:]
		}
		for _, id := range fresh {
			if later {
				s.notice("started again")
			}
			if err := s.read(Request{Run: id, Later: later}); err != nil && s.ctx.Err() == nil {
				s.notice(err.Error())
			}
			later = true
		}
		before = runs
	}
}

// awaitPoll waits for a poll after the one with that number, and returns the container's instances and the poll's
// number; more is false if the pod is gone, or ctx ends.
func (s *source) awaitPoll(after int) (runs []string, polls int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	s.idle = after > 0
	s.changed.Broadcast()
	for s.polls <= after && s.ctx.Err() == nil {
		s.changed.Wait()
	}
	s.waiting--
	if len(s.runs[s.container]) == 0 {
		s.idle = true
		s.changed.Broadcast()
	}
	return s.runs[s.container], s.polls, !s.gone && s.ctx.Err() == nil
}

// read reads the log of an instance.
func (s *source) read(r Request) error {
	s.mu.Lock()
	s.idle = false
	s.mu.Unlock()
	out, errOut := &lines{source: s, stream: "stdout"}, &lines{source: s, stream: "stderr"}
	r.Container, r.Out, r.ErrOut = s.container, out, errOut
	r.CaughtUp = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count++
		s.caughtUp = s.count
		s.changed.Broadcast()
	}
	return errors.Join(s.Read(s.ctx, r), out.end(), errOut.end())
}

// notice adds a line that says something about the log, with the time of the line before it.
func (s *source) notice(text string) {
	s.mu.Lock()
	at := s.last
	s.mu.Unlock()
	_ = s.add([]Line{{Time: at, Container: s.container, Stream: Notice, Text: text}})
}

// add adds lines, at least one, when there is space for them.
func (s *source) add(all []Line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.bytes >= buffered && s.ctx.Err() == nil {
		s.changed.Wait()
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	s.count++
	s.queue = append(s.queue, batch{all, s.count})
	s.last = all[len(all)-1].Time
	for _, line := range all {
		s.bytes += lineOverhead + len(line.Text)
	}
	s.changed.Broadcast()
	return nil
}
