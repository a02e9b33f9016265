package report

import (
	"errors"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// unended is a report with containers that still ran when it was written, and that are stopped: what they write
// until their end is part of it, too. Nil: there are none.
type unended struct {
	run Run
	// merged are the suites of reports of containers. The volumes that have them may have been removed since.
	merged []junitSuite
	// read is the output of run as it was given, and texts are the outputs that the report has.
	read  func(p *v1.Pod, s *v1.ContainerStatus) (out, errOut string)
	texts map[pod.Instance][2]string
}

// newUnended returns what a report of a run is to be written again with; nil if nothing of it is stopped, or if the
// report is no file: a reader of a pipe gets one report only.
func newUnended(path string, r Run) *unended {
	if info, err := os.Stat(path); r.Output == nil || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	u := &unended{run: r, read: r.Output, texts: map[pod.Instance][2]string{}}
	stopped := false
	u.each(func(*v1.Pod, *v1.ContainerStatus) { stopped = true })
	if !stopped {
		return nil
	}
	u.run.Output = u.output
	return u
}

// each calls f with each container that is stopped.
func (u *unended) each(f func(*v1.Pod, *v1.ContainerStatus)) {
	for _, p := range u.run.Pods {
		for _, role := range summary.Roles(p) {
			if u.run.Stops[pod.KeyOf(p)] && role.Status != nil && role.Status.State.Running != nil {
				f(p, role.Status)
			}
		}
	}
}

func instanceOf(p *v1.Pod, s *v1.ContainerStatus) pod.Instance {
	return pod.Instance{Key: pod.KeyOf(p), UID: p.UID, Container: s.Name}
}

// output is Run.Output. It reads each log once: it may have been removed since.
func (u *unended) output(p *v1.Pod, s *v1.ContainerStatus) (out, errOut string) {
	text, has := u.texts[instanceOf(p, s)]
	if !has {
		text[0], text[1] = u.read(p, s)
		u.texts[instanceOf(p, s)] = text
	}
	return text[0], text[1]
}

// reread reads the log of a container again, unless there is none any more.
func (u *unended) reread(p *v1.Pod, s *v1.ContainerStatus) {
	if out, errOut := u.read(p, s); out+errOut != "" {
		u.texts[instanceOf(p, s)] = [2]string{out, errOut}
	}
}

// again is what File has of an unended report.
type again struct {
	mu sync.Mutex
	of *unended
}

// Removing reads the logs of a pod, whose containers have ended. It is called before they are removed.
func (r *File) Removing(key pod.Key, uid pod.UID) {
	r.again.mu.Lock()
	defer r.again.mu.Unlock()
	u := r.again.of
	if u == nil {
		return
	}
	u.each(func(p *v1.Pod, s *v1.ContainerStatus) {
		if pod.KeyOf(p) == key && p.UID == uid {
			u.reread(p, s)
		}
	})
}

// Complete writes the results again if containers were stopped after that, with what these have written since. Until
// then, and if that fails, the file has the results without it. It gives up at an interrupt or after the timeout.
func (r *File) Complete(timeout time.Duration, interrupted <-chan struct{}) error {
	ended, err := within(func() error {
		r.again.mu.Lock()
		defer r.again.mu.Unlock()
		u := r.again.of
		if u == nil {
			return nil
		}
		u.each(u.reread)
		return r.write(junitWith(u.run, u.merged))
	}, timeout, interrupted)
	if !ended {
		return errors.New("the report lacks what containers have written while they were stopped: " + r.Path)
	}
	return err
}
