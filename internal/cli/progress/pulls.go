package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

const (
	// barWidth is the width of a progress bar in characters.
	barWidth = 20
	// printPullsEvery is how often the progress of pulls is printed if lines cannot be redrawn.
	printPullsEvery = 10 * time.Second
	redrawEvery     = 200 * time.Millisecond
)

// bar renders the progress of a pull as a bar, or as an ellipsis while the total size is unknown.
func bar(p pod.Progress) string {
	if !p.HasTotal() {
		return "…"
	}
	full := int(p.Fetched * barWidth / p.Total)
	return fmt.Sprintf("[%s%s] %3d%% %s",
		strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), p.Fetched*100/p.Total, p)
}

// waitingImages returns the images of the containers of a pod that are waiting or have no status yet,
// each image once.
func waitingImages(p *v1.Pod) []string {
	var out []string
	seen := map[string]bool{}
	for _, r := range summary.Roles(p) {
		if r.Status == nil || r.Status.State.Waiting == nil || seen[r.Container.Image] {
			continue
		}
		seen[r.Container.Image] = true
		out = append(out, r.Container.Image)
	}
	return out
}

// WatchPulls sets the function that returns the progress of the pull of an image.
func (l *Progress) WatchPulls(pulling func(image string) (pod.Progress, bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulling, l.reported = pulling, time.Now()
}

// pull returns the progress of the first pull that the pod of the line waits for. ok is false if it
// waits for none.
func (l *Progress) pull(line *podLine) (image string, p pod.Progress, ok bool) {
	if l.pulling == nil || line.over {
		return "", p, false
	}
	for _, image = range line.images {
		if p, ok = l.pulling(image); ok {
			return image, p, true
		}
	}
	return "", p, false
}

// printPulls prints the progress of pulls as lines if printPullsEvery has passed since the last time.
// The caller must hold l.mu.
func (l *Progress) printPulls() {
	if l.pulling == nil || time.Since(l.reported) < printPullsEvery {
		return
	}
	l.reported = time.Now()
	for _, key := range l.order {
		if image, p, ok := l.pull(l.lines[key]); ok && p.HasTotal() {
			fmt.Fprintf(l.out, "%6.1fs %s pulling %s: %s\n", time.Since(l.began).Seconds(), key, image, p)
		}
	}
}

// Pull prints the progress of the pull of an image: a bar on a terminal, otherwise a line every
// printPullsEvery. It stops when the caller calls the returned function with the result of the pull.
func Pull(out io.Writer, ref string, pulling func(string) (pod.Progress, bool)) func(error) {
	l, name := New(out, nil), summary.Plain(ref)
	var last pod.Progress
	show := func() {
		if p, ok := pulling(ref); ok {
			last = p
		}
		switch {
		case !l.plain:
			width, _ := l.size()
			fmt.Fprintf(l.out, "\r\x1b[K%s", truncate(
				fmt.Sprintf("%6.1fs %s %s", time.Since(l.began).Seconds(), name, bar(last)),
				width-1,
			))
		case time.Since(l.reported) >= printPullsEvery && last.HasTotal():
			l.reported = time.Now()
			fmt.Fprintf(l.out, "%6.1fs %s: %s\n", time.Since(l.began).Seconds(), name, last)
		}
	}
	l.reported = time.Now()
	stop := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(redrawEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				show()
			case <-stop:
				return
			}
		}
	})
	return func(err error) {
		close(stop)
		ticking.Wait()
		if !l.plain {
			fmt.Fprint(l.out, "\r\x1b[K")
		}
		if err == nil && last.HasTotal() {
			fmt.Fprintf(l.out, "%6.1fs %s: %s in %d layers\n",
				time.Since(l.began).Seconds(), name, pod.Bytes(last.Total), last.Layers)
		}
	}
}
