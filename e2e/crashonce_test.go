package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// own is the pod of the once that runs beside serve.
const own = "own-n"

// besideServe is the once of a round, with a pod of its own on serve's directories.
type besideServe struct {
	*beside
	manifest string
	ended    chan struct{}
	// killed says that it was, and that another one has taken its place.
	killed bool
}

// startOnce begins the round's once.
func (r *round) startOnce() {
	r.t.Helper()
	if r.once.manifest == "" {
		r.once.manifest = inContainer(manifest("own", "Never",
			fmt.Sprintf("echo start >> /t/own-n.c; sleep 1.%d; echo done >> /t/own-n.c", r.dice.IntN(9)),
			"volumes: [{name: t, hostPath: {path: "+r.path("trace")+", type: Directory}}]"), "volumeMounts: [{name: t, mountPath: /t}]")
	}
	b, ended := r.onceBeside(r.once.manifest), make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.cmd.Wait() // the code is what counts
	}()
	r.once.beside, r.once.ended = b, ended
}

// killOnce kills the once alone: its pod goes on, and the next once has it.
func (r *round) killOnce() {
	for _, child := range children(r.once.cmd.Process.Pid) { // beneath nsenter
		r.signal(child)
	}
	<-r.once.ended
	r.once.killed = true
	r.then(func() {
		r.pass(1500)
		r.startOnce()
	})
}

// endOnce waits until the once has ended, and judges its exit code and how often its job ran.
func (r *round) endOnce() {
	r.t.Helper()
	select {
	case <-r.once.ended:
	case <-time.After(patience):
		r.failf("once does not end: %s", r.once.said.String())
	}
	code, struck := r.once.cmd.ProcessState.ExitCode(), r.struck[own+"/c"]
	text, _ := os.ReadFile(r.path("trace", own+".c")) // none if it never ran
	starts, done := strings.Count(string(text), "start"), strings.Count(string(text), "done")
	runs := 1
	if r.once.killed { // when it had completed meanwhile the next once is a new run
		runs = 2
	}
	switch {
	case starts > runs+struck || done > starts:
		r.failf("the job of once ran %d times and completed %d times, struck %d times", starts, done, struck)
	case struck == 0 && (code != 0 || starts == 0 || starts != done):
		r.failf("the job of once was not struck, but ran %d times and completed %d times; exit %d: %s", starts, done, code, r.once.said.String())
	case r.fault != "reboot" && !slices.Contains([]int{0, 1, 3}, code):
		r.failf("exit %d of once: %s", code, r.once.said.String())
	}
}
