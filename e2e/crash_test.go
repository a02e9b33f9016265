package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test"
)

// The crash matrix: every fault at a random moment of every phase.
var (
	phases = []string{"start", "steady", "restart", "stop"}
	faults = []string{"podrun", "once", "containerd", "both", "shim", "process", "first process", "container removed", "namespace unmounted", "sandboxes removed", "run directory removed", "reboot"}
)

// lanes is how many rounds go on at once.
const lanes = 4

// TestCrashMatrix runs PODRUN_CRASH_ROUNDS rounds (20). In each, pods are started, one fault strikes in one
// phase, and in the end exactly what is wanted runs, nothing has been restarted that had not died, no count
// has gone back, no completed job has run again, and `down` leaves nothing. Beside serve a once runs a pod of its own. PODRUN_E2E_SEED repeats a run's
// choices, PODRUN_CRASH_ROUND=N only its round N, PODRUN_CRASH_FAULT=F makes F the fault of all rounds.
func TestCrashMatrix(t *testing.T) {
	if !wanted() {
		t.Skip("end-to-end tests run as root by make e2e or make crash (PODRUN_E2E=1)")
	}
	rounds := test.Number(t, "PODRUN_CRASH_ROUNDS", 20)
	seed := uint64(test.Number(t, "PODRUN_E2E_SEED", int(time.Now().UnixNano()%1e9)))
	only := test.Number(t, "PODRUN_CRASH_ROUND", -1)
	t.Logf("PODRUN_E2E_SEED=%d", seed)
	var next, passed atomic.Int64
	t.Run("lanes", func(t *testing.T) {
		for i := range lanes {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				var l *lane
				for {
					n := int(next.Add(1)) - 1
					if n >= rounds {
						return
					}
					if only >= 0 && n != only {
						continue
					}
					if l == nil {
						l = newLane(t)
					}
					newRound(l, seed, n).run()
					passed.Add(1)
				}
			})
		}
	})
	t.Logf("%d rounds passed, PODRUN_E2E_SEED=%d", passed.Load(), seed)
}

// round is one fault in one phase.
type round struct {
	*lane
	name         string
	phase, fault string
	dice         *rand.Rand
	// struck are how often a container, as pod/container, may have died by the fault; sure those that did.
	struck map[string]int
	sure   map[string]bool
	// mend undoes what is not podrun's to mend, and starts podrun if it was killed.
	mend func()
	// counts are the highest restart counts seen.
	counts map[string]int32
	// began are the pods' start times.
	began  map[string]string
	wanted map[string]bool
	once   besideServe
}

func newRound(l *lane, seed uint64, n int) *round {
	// Shuffled, but each fault in its turn, so that few rounds see much of the matrix.
	turn := n / len(faults)
	fault := rand.New(rand.NewPCG(seed, uint64(turn))).Perm(len(faults))[n%len(faults)]
	if only := slices.Index(faults, os.Getenv("PODRUN_CRASH_FAULT")); only >= 0 {
		turn, fault = n, only
	}
	phase := rand.New(rand.NewPCG(seed, ^uint64(fault))).Perm(len(phases))[turn%len(phases)]
	r := &round{
		lane: l, phase: phases[phase], fault: faults[fault], dice: rand.New(rand.NewPCG(seed, uint64(n)+1)),
		struck: map[string]int{}, sure: map[string]bool{}, mend: func() {}, counts: map[string]int32{}, began: map[string]string{},
	}
	r.name = fmt.Sprintf("round %d: %s during %s", n, r.fault, r.phase)
	return r
}

// failf ends the lane.
func (r *round) failf(format string, args ...any) {
	r.t.Helper()
	said, _ := os.ReadFile(r.log.Name())
	daemon, _ := os.ReadFile(r.path("root", "containerd", "containerd.log")) // of podrun's own
	traces := ""
	files, _ := filepath.Glob(r.path("trace", "*"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		traces += fmt.Sprintf("%s: %s\n", filepath.Base(file), strings.ReplaceAll(string(text), "\n", " "))
	}
	r.t.Fatalf("%s: %s\ntraces:\n%sserve said:\n%scontainerd said:\n%s", r.name, fmt.Sprintf(format, args...), traces, said, daemon)
}

func (r *round) run() {
	begin := time.Now()
	must(r.t, errors.Join(r.log.Truncate(0), os.RemoveAll(r.path("trace")), os.Mkdir(r.path("trace"), 0o777)))
	clear(r.uids)
	r.wanted = map[string]bool{}
	r.configure("v0")
	for name, text := range r.manifests() {
		r.write(name+".yaml", text)
		r.wanted[name] = true
	}
	r.start()
	r.startOnce()
	switch r.phase {
	case "start":
		r.pass(1500)
	case "steady":
		r.settle("before")
		r.pass(300)
	case "restart":
		r.settle("before")
		r.killProcess("web-n/c")
		r.pass(150)
	case "stop":
		r.settle("before")
		r.remove("duo.yaml")
		delete(r.wanted, "duo")
		r.pass(1200)
	}
	r.t.Logf("%s", r.name)
	times := ""
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"strike", r.strike}, {"edit", func() { r.configure("v1") }}, {"mend", func() { r.mend() }}, {"settle", func() { r.settle("in the end") }}, {"once", r.endOnce}, {"judge", r.judgeTraces}, {"volumes", r.judgeVolumes},
		{"end", func() { r.endServe(syscall.SIGTERM) }}, {"down", r.down}, {"look", r.nothingLeft},
	} {
		begun := time.Now()
		step.do()
		times += fmt.Sprintf(" %s %s", step.name, time.Since(begun).Round(time.Millisecond))
	}
	took := time.Since(begin).Round(100 * time.Millisecond)
	r.t.Logf("%s: passed in %s:%s", r.name, took, times)
	if took > 20*time.Second {
		said, _ := os.ReadFile(r.log.Name())
		r.t.Logf("which is slow; serve said:\n%s", said)
	}
}

func (r *round) start() { r.serve("--max-container-restart-period=1s") }

// pass lets up to most milliseconds go by: a random moment to strike at, nothing that is waited for.
func (r *round) pass(most int) { time.Sleep(time.Duration(r.dice.IntN(most)) * time.Millisecond) }

// manifests are the round's pods, by name.
func (r *round) manifests() map[string]string {
	trace := []string{"volumes: [{name: t, hostPath: {path: " + r.path("trace") + ", type: Directory}}]"}
	mount := "volumeMounts: [{name: t, mountPath: /t}]"
	service := func(file string) string {
		return "echo start >> /t/" + file + `; trap "exit 0" TERM; while :; do sleep 1000 & wait; done`
	}
	init := func(name, script string, more ...string) []string {
		return append(append(slices.Clone(trace), "initContainers:", "- name: "+name, "  image: "+box, "  command: [sh, -c, "+asJSON(script)+"]", "  "+mount), more...)
	}
	duo := inContainer(manifest("duo", "Always", service("duo-n.c"), init("s", service("duo-n.s"), "  restartPolicy: Always")...), mount)
	duo = inContainer(duo, "") + indented(2, []string{"- name: d", "  image: " + box, "  command: [sh, -c, " + asJSON(service("duo-n.d")) + "]", "  " + mount,
		// They find nothing wrong, whatever happens to who asks.
		"  startupProbe: {exec: {command: [grep, start, /t/duo-n.d]}, periodSeconds: 1, timeoutSeconds: 20}",
		"  livenessProbe: {exec: {command: [grep, start, /t/duo-n.d]}, periodSeconds: 1, timeoutSeconds: 20}",
		"  readinessProbe: {exec: {command: [grep, start, /t/duo-n.d]}, periodSeconds: 1, timeoutSeconds: 20}",
		"  lifecycle: {postStart: {sleep: {seconds: 0}}, preStop: {exec: {command: [\"true\"]}}}"})
	if r.fault == "first process" {
		duo += "  shareProcessNamespace: true\n"
	}
	return map[string]string{
		"web": r.webWithVolumes(service("web-n.c")),
		"duo": duo,
		"job": inContainer(manifest("job", "Never", fmt.Sprintf("echo start >> /t/job-n.c; sleep 1.%d; echo done >> /t/job-n.c; exit 3", r.dice.IntN(9)), trace...), mount),
		"try": inContainer(manifest("try", "OnFailure", `[ -e /t/try-n.i ] || exit 9; echo start >> /t/try-n.c; sleep 1; [ $(grep -c start /t/try-n.c) -gt 1 ] || exit 7; echo done >> /t/try-n.c`,
			init("i", "sleep 0.2; echo done >> /t/try-n.i")...), mount),
	}
}

// isService tells the pods that run for ever from the jobs.
func isService(name string) bool { return name == "web" || name == "duo" }

// settle waits for what is wanted and that it stays so for a second. Each look is a process, and rounds go on
// beside this one, so there are few.
func (r *round) settle(when string) {
	r.t.Helper()
	var err error
	var before string
	var since time.Time
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		var now string
		if now, err = r.look(); err != nil {
			before = ""
			continue
		}
		if now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > time.Second {
			return
		}
	}
	r.failf("waited in vain for what is wanted %s: %v", when, err)
}

// lasting are the pod's containers but those that run before the others and end.
func lasting(p *v1.Pod) []v1.ContainerStatus {
	all := slices.Clone(p.Status.ContainerStatuses)
	for i, c := range p.Status.InitContainerStatuses {
		if policy := p.Spec.InitContainers[i].RestartPolicy; policy != nil && *policy == v1.ContainerRestartPolicyAlways {
			all = append(all, c)
		}
	}
	return all
}

// look complains about what is not as wanted; else it returns what runs.
func (r *round) look() (running string, err error) {
	pods := r.pods()
	processes := map[string]int{} // by container ID
	for _, i := range r.instances() {
		if i.uid != string(pods[own].UID) {
			processes[i.id] = i.pid
		}
	}
	delete(pods, own) // once has it, not serve
	var wrong []error
	services := 0
	for _, name := range slices.Sorted(maps.Keys(r.wanted)) {
		p, ok := pods[name+"-n"]
		if !ok {
			wrong = append(wrong, fmt.Errorf("no %s", name))
			continue
		}
		// It begins with its sandbox; what is shown before is when its manifest was read.
		begun := p.Status.StartTime != nil && slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.ContainerID != "" })
		if begun && (isService(name) || r.fault != "reboot") {
			now := p.Status.StartTime.String()
			if was := r.began[name]; was != "" && was != now {
				r.failf("%s began at %s and now at %s", name, was, now)
			}
			r.began[name] = now
		}
		for _, c := range lasting(&p) {
			if was := r.counts[p.Name+"/"+c.Name]; c.RestartCount < was && (isService(name) || r.fault != "reboot") {
				r.failf("%s/%s: restart count was %d and is %d", p.Name, c.Name, was, c.RestartCount)
			}
			r.counts[p.Name+"/"+c.Name] = c.RestartCount
			_, id, _ := strings.Cut(c.ContainerID, "://")
			if isService(name) {
				services++
				if processes[id] == 0 {
					wrong = append(wrong, fmt.Errorf("%s/%s: no process of %s", name, c.Name, id))
				}
				running += fmt.Sprintf("%s=%d ", id, processes[id])
			}
		}
		if isService(name) {
			wrong = append(wrong, isReady(&p))
		} else if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			wrong = append(wrong, fmt.Errorf("%s is %s", name, asJSON(p.Status.ContainerStatuses)))
		}
	}
	if len(pods) != len(r.wanted) {
		wrong = append(wrong, fmt.Errorf("%d pods, want %v", len(pods), r.wanted))
	}
	if len(processes) != services {
		wrong = append(wrong, fmt.Errorf("%d processes, want %d: %v", len(processes), services, processes))
	}
	return running, errors.Join(wrong...)
}

// judgeTraces compares what the containers' processes wrote with what podrun says of them and what struck.
func (r *round) judgeTraces() {
	pods := r.pods()
	for name := range r.wanted {
		p := pods[name+"-n"]
		for _, c := range lasting(&p) {
			key := p.Name + "/" + c.Name
			text, _ := os.ReadFile(r.path("trace", p.Name+"."+c.Name))
			starts, done := strings.Count(string(text), "start"), strings.Count(string(text), "done")
			if isService(name) {
				r.judgeService(key, c, starts)
			} else {
				r.judgeJob(key, p.Status.Phase, c, starts, done)
			}
		}
	}
}

func (r *round) judgeService(key string, c v1.ContainerStatus, starts int) {
	count, may := int(c.RestartCount), r.struck[key]
	switch {
	case count > may:
		r.failf("%s was restarted %d times, but died %d times at most", key, count, may)
	case starts > count+1:
		r.failf("%s ran %d times, but its restart count is %d", key, starts, count)
	case r.sure[key] && count == 0:
		r.failf("%s was killed, but its restart count is 0", key)
	}
	if last := c.LastTerminationState.Terminated; count > 0 && last == nil && r.fault != "container removed" {
		r.failf("%s was restarted %d times, but has no last state", key, count)
	}
}

func (r *round) judgeJob(key string, phase v1.PodPhase, c v1.ContainerStatus, starts, done int) {
	struck, ended := r.struck[key], c.State.Terminated
	// How often it may have completed and nobody could know: a job that is to succeed runs again then.
	reboots := 0
	if r.fault == "reboot" || r.fault == "run directory removed" && key == "try-n/c" {
		reboots = 1
	}
	var want v1.PodPhase
	natural, runs := 0, 0
	switch key {
	case "job-n/c":
		want, natural, runs = v1.PodFailed, 3, 1
	case "try-n/c":
		want, natural, runs = v1.PodSucceeded, 0, 2
	}
	switch {
	case ended == nil:
		r.failf("%s: no exit: %s", key, asJSON(c))
	case done > 1+reboots:
		r.failf("%s completed %d times", key, done)
	case starts > runs+struck+reboots:
		r.failf("%s ran %d times, struck %d times", key, starts, struck)
	case struck == 0 && (phase != want || int(ended.ExitCode) != natural || starts != runs):
		r.failf("%s was not struck, but ran %d times and is %s: %s", key, starts, phase, asJSON(c))
	}
}

// down stops and removes all.
func (r *round) down() {
	r.t.Helper()
	if out := r.lane.run("down", "--all"); out.code != 0 {
		r.failf("down --all: %v", out)
	}
}

// nothingLeft looks for traces.
func (r *round) nothingLeft() {
	r.t.Helper()
	left := errors.New("not looked")
	for end := time.Now().Add(patience); left != nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		left = r.left()
	}
	if left != nil {
		r.failf("left behind: %v", left)
	}
}
