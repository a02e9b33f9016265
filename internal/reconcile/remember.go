package reconcile

import (
	"slices"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// remember notes down the newest instance of each container when it has changed. So neither a restart
// count nor a job's completion is lost with a container that somebody else removes.
func (w *worker) remember(seen pod.Observed, p plan.Plan) {
	if w.pod == nil || p.Again {
		w.noted = nil
		return
	}
	mine, _ := seen.Split(w.pod.UID)
	if len(mine.Data) == 0 {
		return
	}
	var newest []pod.Container
	for _, c := range pod.AllContainers(w.pod) {
		if last, found := lastRun(mine, c.Name); found {
			newest = append(newest, last)
		}
	}
	if slices.EqualFunc(newest, w.noted, sameNote) {
		return
	}
	if !slices.EqualFunc(newest, mine.Remembered, sameNote) {
		if err := w.o.Data.Remember(w.pod.UID, newest); err != nil {
			if err.Error() != w.told.unnoted { // it is tried in each round
				w.log.Warn("restart counts are not noted down", "why", err)
			}
			w.told.unnoted = err.Error()
			return
		}
		w.told.unnoted = ""
	}
	w.noted = newest
}

// lastRun is the newest instance of one revision's container that did run, there or only remembered.
func lastRun(mine pod.Observed, name string) (last pod.Container, found bool) {
	for _, all := range [][]pod.Container{mine.Remembered, mine.Containers} {
		for _, c := range all {
			ran := c.State == pod.Running || c.State == pod.Exited
			if c.Name == name && ran && (!found || c.Attempt >= last.Attempt) {
				last, found = c, true
			}
		}
	}
	last.PID, last.Reaped = 0, true
	return last, found
}

func sameNote(a, b pod.Container) bool {
	return a.ID == b.ID && a.Attempt == b.Attempt && a.State == b.State && a.Boot == b.Boot
}
