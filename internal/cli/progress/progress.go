// Package progress prints the progress of a run and of pulls: on a terminal lines that are redrawn,
// otherwise one line per change.
//
// It does not know when a pod is done or how far a pull is: its caller gives it functions that do.
// Begin reading at Progress; Pull is for a single pull.
package progress

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// Progress prints the progress of pods: on a terminal one line per pod, which is redrawn, otherwise
// one line per change. Its methods are safe for concurrent use.
type Progress struct {
	out   io.Writer
	began time.Time
	// size returns the terminal's size in characters. It is nil if out is not a terminal, and after
	// Finish.
	size func() (width, height int)
	// plain is true if out is not a terminal, so that lines cannot be redrawn.
	plain bool
	// done reports whether a pod has its result.
	done func(*v1.Pod) bool

	mu    sync.Mutex
	order []pod.Key
	lines map[pod.Key]*podLine
	// pulling returns the progress of the pull of an image. It is nil until WatchPulls is called.
	pulling  func(image string) (pod.Progress, bool)
	reported time.Time // when the progress of pulls was last printed as lines
	drawn    int       // number of lines on the screen that the next draw overwrites
}

type podLine struct {
	state string
	// elapsed is the time from the beginning to the last change of state. over is true if the pod
	// has its result.
	elapsed time.Duration
	over    bool
	// images are the images that the pod may be waiting for.
	images []string
}

// New returns a progress that prints to out. done reports whether a pod has its result. Lines are not
// redrawn if out is not a terminal or TERM is dumb.
func New(out io.Writer, done func(*v1.Pod) bool) *Progress {
	p := &Progress{out: out, began: time.Now(), lines: map[pod.Key]*podLine{}, done: done, size: cli.SizeOf(out)}
	p.plain = p.size == nil
	return p
}

// Underlying returns the writer to which the progress is printed.
func (l *Progress) Underlying() io.Writer { return l.out }

// Report records the status of a pod and prints it if it has changed.
func (l *Progress) Report(p *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, state := pod.KeyOf(p), stateOf(p)
	line := l.lines[key]
	if line == nil {
		line = &podLine{}
		l.lines[key], l.order = line, append(l.order, key)
	}
	line.images = waitingImages(p)
	over := l.done(p)
	if line.state == state && line.over == over {
		return
	}
	before := line.state
	line.state, line.elapsed, line.over = state, time.Since(l.began), over
	switch {
	case l.size != nil:
		l.draw()
	case before != state:
		fmt.Fprintf(l.out, "%6.1fs %s %s\n", line.elapsed.Seconds(), key, state)
	}
}

// stateOf returns the state of p in a word, what it waits for, and how often it has been tried.
func stateOf(p *v1.Pod) string {
	state := summary.State(p)
	if (state == "ContainerCreating" || state == "PodInitializing") && !unmounted(p) {
		return state // the progress of pulls is shown by itself
	}
	text := state
	var later time.Time // when no next attempt is in the future any more: lines do not count down
	if why := summary.Why(p, later.AddDate(9998, 0, 0)); why != "" && why != state {
		text += " (" + summary.PlainLine(why) + ")"
	}
	attempts := int32(1)
	for _, r := range summary.Roles(p) {
		if r.Status != nil {
			attempts = max(attempts, r.Status.RestartCount+1)
		}
	}
	if attempts > 1 {
		text += fmt.Sprintf(", attempt %d", attempts)
	}
	return text
}

// unmounted reports whether p waits for a volume that cannot be mounted.
func unmounted(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReadyToStartContainers && c.Reason == pod.ReasonFailedMount
	})
}

// Tick updates the times of pods that are not done and the progress of pulls every redrawEvery,
// until stop is closed.
func (l *Progress) Tick(stop <-chan struct{}) {
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.mu.Lock()
			switch {
			case l.plain:
				l.printPulls()
			case l.size != nil: // not finished
				l.draw()
			}
			l.mu.Unlock()
		case <-stop:
			return
		}
	}
}

// draw writes all lines over those that were drawn last. If there are more pods than the terminal
// has lines, it leaves out pods that are done first. The caller must hold l.mu, and l.size must not
// be nil.
func (l *Progress) draw() {
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
		b.WriteString(truncate(fmt.Sprintf("%6.1fs %s %s", took.Seconds(), key, state), width-1) + "\n")
	}
	l.drawn = len(keys)
	_, _ = io.WriteString(l.out, b.String()) // an error means that the terminal is closed
}

// unfinished returns at most most pods, beginning with those that are not done.
func (l *Progress) unfinished(most int) []pod.Key {
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

// erase appends to b the escape sequences that remove the lines drawn last.
func (l *Progress) erase(b *strings.Builder) {
	if l.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", l.drawn)
		l.drawn = 0
	}
}

// Write implements io.Writer. It writes text, such as the log, above the lines of the pods.
func (l *Progress) Write(text []byte) (int, error) {
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

// Finish draws the lines for the last time. What is written later appears below them.
func (l *Progress) Finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size != nil {
		l.draw()
		l.drawn = 0
		l.size = nil
	}
}

// truncate returns the first width characters of s.
func truncate(s string, width int) string {
	runes := []rune(s)
	if width < 1 || len(runes) <= width {
		return s
	}
	return string(runes[:width])
}
