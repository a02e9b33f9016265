package cmd

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
)

// progress shows how pods come along: on a terminal a line a pod that is kept up to date, else a line for
// each change.
type progress struct {
	out   io.Writer
	began time.Time
	// size returns the terminal's size in characters; nil: out is none.
	size func() (width, height int)
	// plain says that out is none, so that lines stay as they were written.
	plain bool
	// done reports that a pod has come to its result.
	done func(*v1.Pod) bool

	mu    sync.Mutex
	order []pod.Key
	lines map[pod.Key]*progressLine
	// pulling tells how far the pull of an image is; nil: nobody knows yet.
	pulling  func(image string) (pod.Progress, bool)
	reported time.Time // when it was told last in lines
	drawn    int       // lines on the screen that are to be drawn over
}

type progressLine struct {
	state string
	// elapsed is until the state came about; over says that the pod has come to its result.
	elapsed time.Duration
	over    bool
	// images are those that the pod may be waiting for.
	images []string
}

// newProgress shows progress on out, which stays as it is where it is no terminal.
func newProgress(out io.Writer, done func(*v1.Pod) bool) *progress {
	p := &progress{out: out, began: time.Now(), lines: map[pod.Key]*progressLine{}, done: done}
	if f := terminalOf(out); f != nil && os.Getenv("TERM") != "dumb" {
		p.size = func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil || width == 0 || height == 0 {
				return 80, 24 // it does not tell
			}
			return width, height
		}
	}
	p.plain = p.size == nil
	return p
}

// stateOf is how p is, in a word.
func stateOf(p *v1.Pod) string {
	if p.Status.Phase == v1.PodPending && p.Status.Reason != "" {
		return p.Status.Reason // why it does not start
	}
	return cli.Of(p).Text
}

// report takes note of a pod's status.
func (l *progress) report(p *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, state := pod.KeyOf(p), stateOf(p)
	line := l.lines[key]
	if line == nil {
		line = &progressLine{}
		l.lines[key], l.order = line, append(l.order, key)
	}
	line.images = awaited(p)
	over := l.done(p)
	if line.state == state && line.over == over {
		return
	}
	said := line.state
	line.state, line.elapsed, line.over = state, time.Since(l.began), over
	switch {
	case l.size != nil:
		l.draw()
	case said != state:
		fmt.Fprintf(l.out, "%6.1fs %s %s\n", line.elapsed.Seconds(), key, state)
	}
}

// tick lets the times of what is not over go on, a few times a second, until stop is closed.
func (l *progress) tick(stop <-chan struct{}) {
	again := time.NewTicker(redrawEvery)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			l.mu.Lock()
			switch {
			case l.plain:
				l.sayPulls()
			case l.size != nil: // not finished
				l.draw()
			}
			l.mu.Unlock()
		case <-stop:
			return
		}
	}
}

// draw writes all lines over those that were drawn last. The caller holds the lock.
func (l *progress) draw() {
	width, height := l.size()
	var b strings.Builder
	l.erase(&b)
	keys := l.order
	if most := max(height-2, 1); len(keys) > most {
		keys = l.unfinished(most)
	}
	for _, key := range keys {
		line := l.lines[key]
		took := line.elapsed
		if !line.over {
			took = time.Since(l.began)
		}
		state := line.state
		if image, p, ok := l.pull(line); ok {
			state = "pulling " + image + " " + bar(p)
		}
		b.WriteString(cutTo(fmt.Sprintf("%6.1fs %s %s", took.Seconds(), key, state), width-1) + "\n")
	}
	l.drawn = len(keys)
	_, _ = io.WriteString(l.out, b.String()) // whoever closed the terminal does not want to know
}

// unfinished are the most that fit of the pods, those first that are not over.
func (l *progress) unfinished(most int) []pod.Key {
	var first, last []pod.Key
	for _, key := range l.order {
		if l.lines[key].over {
			last = append(last, key)
		} else {
			first = append(first, key)
		}
	}
	return append(first, last...)[:most]
}

// erase takes the lines that were drawn off the screen.
func (l *progress) erase(b *strings.Builder) {
	if l.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", l.drawn)
		l.drawn = 0
	}
}

// Write puts text above the lines, as of the log. It implements io.Writer.
func (l *progress) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size == nil {
		return l.out.Write(text)
	}
	var b strings.Builder
	l.erase(&b)
	b.Write(text)
	if _, err := io.WriteString(l.out, b.String()); err != nil {
		return 0, err
	}
	if len(text) > 0 && text[len(text)-1] == '\n' {
		l.draw()
	}
	return len(text), nil
}

// finish leaves the lines as they are; what is written from now on comes below them.
func (l *progress) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size != nil {
		l.draw()
		l.drawn = 0
		l.size = nil
	}
}

// cutTo is the beginning of s that fits.
func cutTo(s string, width int) string {
	runes := []rune(s)
	if width < 1 || len(runes) <= width {
		return s
	}
	return string(runes[:width])
}
