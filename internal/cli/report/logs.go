package report

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// Logs prints the logs of the containers of a run at its end. Those of containers that still run, and that are
// stopped then, are printed when they have been: what a container writes while it is stopped is part of its log.
type Logs struct {
	Out, ErrOut io.Writer
	// Groups, if any, have the log of one container each.
	Groups *Groups
	Dirs   layout.Dirs
	Log    *slog.Logger

	mu           sync.Mutex
	ended, stops []*entry
	// printed reports that Print has come to its end.
	printed bool
	once    sync.Once // of PrintStopped
}

// entry is what is printed of a container, or of a pod.
type entry struct {
	// title is a line that precedes the log; "" if there is none.
	title string
	// name is the container's, with its pod's.
	name string
	// log is its file; "" if no log is printed. tail is how many lines are printed of it; nil: all.
	log  string
	tail *int
	// key and uid are the pod's. kept is the log if it has been removed since.
	key  pod.Key
	uid  pod.UID
	kept *cri.Kept
}

// Select determines what Print and PrintStopped print: the logs of the selected containers (all, failed, none, or
// stream: they have been printed) and, for containers that failed or were not done, the reason or the state.
func (l *Logs) Select(r Run, which string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if which == "none" {
		return
	}
	var well []*entry
	for _, p := range r.Pods {
		key, said := pod.KeyOf(p), false
		for _, role := range summary.Roles(p) {
			s := role.Status
			if s == nil || s.State.Running == nil && lastExit(*s) == nil {
				continue // it has not run: a log with its name is of an earlier run
			}
			problem := r.problemOf(p, role)
			if problem == "" && which != "all" {
				continue
			}
			e := &entry{key: key, uid: p.UID, name: shortName(p) + "/" + s.Name}
			if which != "stream" {
				e.log = l.Dirs.ContainerLog(key, p.UID, s.Name, int(s.RestartCount))
			}
			switch {
			case problem != "":
				e.title, said = fmt.Sprintf("%s container %s %s", key, s.Name, problem), true
			case !l.Groups.enabled():
				e.title = fmt.Sprintf("%s container %s: %s", key, s.Name, stateOf(s))
				well = append(well, e)
			}
			if which != "all" {
				e.tail = new(failedTail)
			}
			if r.Stops[key] && s.State.Running != nil {
				l.stops = append(l.stops, e)
			} else {
				l.ended = append(l.ended, e)
			}
		}
		if why := r.failure(p); why != "" && !said {
			l.ended = append(l.ended, &entry{title: fmt.Sprintf("%s failed: %s", key, why)})
		}
	}
	if len(l.ended)+len(l.stops) == 1 && len(well) == 1 {
		well[0].title = "" // there is nothing to tell it apart from
	}
}

// stateOf returns the state of a container that has run.
func stateOf(s *v1.ContainerStatus) string {
	if s.State.Running != nil {
		return "Running"
	}
	return exitOf(lastExit(*s))
}

// Print prints the logs of the containers that have ended, or go on running.
func (l *Logs) Print() {
	for _, e := range l.ended {
		l.print(e)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.printed = true
}

// Keep keeps the logs that PrintStopped prints of a pod readable. It is called before they are removed.
func (l *Logs) Keep(key pod.Key, uid pod.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.stops {
		if e.key != key || e.uid != uid || e.kept != nil {
			continue
		}
		var err error
		if e.kept, err = cri.Keep(e.log); err != nil {
			l.Log.Debug("keeping a container log failed", "file", e.log, "err", err)
		}
	}
}

// PrintStopped prints the logs of the containers that were stopped, as they are now, once. It prints nothing if
// Print has not come to its end, because then nobody reads the output.
func (l *Logs) PrintStopped() { l.once.Do(l.printStopped) }

func (l *Logs) printStopped() {
	l.mu.Lock()
	printed := l.printed
	l.mu.Unlock()
	if !printed {
		return
	}
	for _, e := range l.stops {
		l.print(e)
	}
}

// problemOf describes how a container failed or, if the pod has no result, the state of the
// container. It returns "" if neither applies or the container never ran.
func (r Run) problemOf(p *v1.Pod, role summary.Role) string {
	s, t := role.Status, role.Status.State.Terminated
	switch {
	// podrun stops sidecars when the pod is done, so their exit code is not a result.
	case t != nil && t.ExitCode != 0 && (!role.Init || !pod.IsSidecar(role.Container)):
		text := fmt.Sprintf("failed: %s, exit code %d%s", t.Reason, t.ExitCode, summary.Plain(detail(t.Message)))
		if why := r.failure(p); why != "" {
			text += " (" + why + ")"
		}
		return text
	case r.problem(p) != "" && s.State.Waiting != nil && lastExit(*s) != nil:
		return fmt.Sprintf("failed: %s (%s; %s)", s.State.Waiting.Reason, exitOf(lastExit(*s)), attempts(s))
	case r.Done(p) || t != nil || s.State.Running == nil && lastExit(*s) == nil:
		return ""
	}
	state := "Running"
	if w := s.State.Waiting; w != nil {
		state = w.Reason
	}
	if last := lastExit(*s); last != nil {
		state += " (" + exitOf(last) + ")"
	}
	return "was not done: " + state
}

// attempts returns how often a container has been run.
func attempts(s *v1.ContainerStatus) string {
	if s.RestartCount == 0 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", s.RestartCount+1)
}

// failure returns why p as a whole has failed; "" if it has not, or only its containers have.
func (r Run) failure(p *v1.Pod) string {
	if why := r.problem(p); why != "" {
		return summary.Plain(why)
	}
	if p.Status.Phase != v1.PodFailed || p.Status.Reason == "" {
		return ""
	}
	return p.Status.Reason + summary.Plain(detail(p.Status.Message))
}

// failedTail is the number of lines that are printed of the log of a failed container.
const failedTail = 20

func (l *Logs) print(e *entry) {
	if e.title != "" {
		fmt.Fprintln(l.ErrOut, e.title)
	}
	if e.log == "" {
		return
	}
	l.mu.Lock()
	kept := e.kept
	l.mu.Unlock()
	ctx, out, errOut := context.Background(), cli.ForTerminal(l.Out), cli.ForTerminal(l.ErrOut)
	out, errOut = l.Groups.Guard(out), l.Groups.Guard(errOut)
	if l.Groups.enabled() {
		ends := &lineEnd{to: out}
		out, errOut = ends, ends // the marks of groups are on standard output
		_, _ = io.WriteString(l.Out, l.Groups.begin(e.name))
		l.Groups.began()
		defer func() { _, _ = io.WriteString(l.Out, ends.missing()+l.Groups.end()) }()
	}
	var err error
	if kept != nil {
		err = kept.Read(ctx, e.tail, out, errOut)
		kept.Close()
	} else {
		err = cri.Read(ctx, e.log, cri.ReadOptions{Tail: e.tail}, out, errOut)
	}
	if err != nil {
		l.Log.Debug("reading container log failed", "file", e.log, "err", err)
	}
}

// outputLines is how many of the last lines of a container a report has.
const outputLines = 500

// Output returns the end of what a container has written, for a report.
func (l *Logs) Output(p *v1.Pod, s *v1.ContainerStatus) (out, errOut string) {
	var texts [2]tailWriter
	log := l.Dirs.ContainerLog(pod.KeyOf(p), p.UID, s.Name, int(s.RestartCount))
	o := cri.ReadOptions{Tail: new(outputLines)}
	if err := cri.Read(context.Background(), log, o, &texts[0], &texts[1]); err != nil {
		l.Log.Debug("reading container log failed", "file", log, "err", err)
	}
	return bounded(string(texts[0]), maxContainer), bounded(string(texts[1]), maxContainer)
}

// tailWriter is the end of what is written to it.
type tailWriter []byte

// Write implements io.Writer.
func (w *tailWriter) Write(text []byte) (int, error) {
	*w = append(*w, text...)
	if len(*w) > 2*maxContainer {
		*w = append((*w)[:0], bounded(string(*w), maxContainer)...)
	}
	return len(text), nil
}
