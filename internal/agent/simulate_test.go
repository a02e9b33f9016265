package agent

import (
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

var (
	simulateSeeds = flag.Int("seeds", 20, "how many seeds to simulate")
	simulateFrom  = flag.Uint64("from", 0, "the first seed")
	simulateTwice = flag.Int("twice", 0, "how many seeds to simulate twice, to see that they repeat")
	simulateTrace = flag.Bool("trace", false, "print what happens")
)

// TestSimulate runs serve and once through random histories with every kind of fault, each from a
// seed, and checks the rules. `make simulate SEED=n` repeats one history and prints its steps.
func TestSimulate(t *testing.T) {
	begun := time.Now()
	all := fnv.New64a()
	for n := range *simulateSeeds {
		seed := *simulateFrom + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := simulate(t, seed)
			for _, line := range w.lines {
				_, _ = io.WriteString(all, line+"\n")
			}
			for _, line := range slices.Compact(w.broken) {
				t.Error(line)
			}
			if len(w.broken) > 0 {
				t.Errorf("repeat it by: make simulate SEED=%d", seed)
			}
		})
	}
	t.Logf("%d seeds took %s; digest of what happened: %x", *simulateSeeds, time.Since(begun).Round(time.Millisecond), all.Sum64())
}

// TestSimulateRepeats: a seed gives the same history each time. That requires the build and run
// settings of scripts/simulate.sh; without them goroutines that wake at the same instant may run in
// any order.
func TestSimulateRepeats(t *testing.T) {
	for n := range *simulateTwice {
		seed := *simulateFrom + uint64(n)
		a, b := simulate(t, seed), simulate(t, seed)
		if slices.Equal(a.lines, b.lines) {
			continue
		}
		t.Errorf("seed %d: %d steps, then %d", seed, len(a.lines), len(b.lines))
		for i := range min(len(a.lines), len(b.lines)) {
			if a.lines[i] != b.lines[i] {
				t.Errorf("step %d: %q, then %q", i, a.lines[i], b.lines[i])
				break
			}
		}
	}
}

// simulate runs one history.
func simulate(t *testing.T, seed uint64) *world {
	o := simulated(t, nil)
	o.backend = nil
	// The UIDs of a Job's pods follow from the path of its manifest, which must be the same each time.
	t.Chdir(o.Sources.Manifests[0])
	o.Sources.Manifests[0] = "/proc/self/cwd"
	o.MaxBackoff = simulatedBackoff
	o.Sources.URL, o.Sources.HTTPCheckFrequency, o.Sources.NoSuffix = "http://manifests/x", 15*time.Second, true
	o.Sources.FileCheckFrequency = 10 * time.Second
	if err := o.Updates.Set("@every 1m", 0); err != nil {
		t.Fatal(err)
	}
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(seed, o.Dirs)
		if *simulateTrace {
			out := t.Output()
			w.trace = func(line string) { fmt.Fprintln(out, line) }
			o.Log = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: inTheWorld(w)}))
		}
		w.engine.OnExec(w.exec)
		s := &simulation{w: w, o: o, r: rand.New(rand.NewPCG(seed, 1)), web: map[int][]byte{}}
		server := s.listen()
		s.run()
		_ = server.Close()
		// Commands that hang and containers that live on end.
		time.Sleep(2 * time.Hour)
	})
	if seed%4 == 0 {
		goruntime.GC() // scripts/simulate.sh has it off: it would run beside the history
	}
	return w
}

// inTheWorld gives log lines the simulation's time.
func inTheWorld(w *world) func([]string, slog.Attr) slog.Attr {
	return func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.String("t", fmt.Sprintf("%.9f", time.Since(w.begun).Seconds()))
		}
		return a
	}
}

// run runs a phase with faults, then one without, and then removes everything.
func (s *simulation) run() {
	for i := range servedPods {
		if s.r.IntN(3) > 0 {
			s.pods[i].pod = randomPod(s.r, i, s.next(), kindsOfPods[s.r.IntN(len(kindsOfPods))])
			s.pods[i].byURL = s.r.IntN(4) == 0
			s.put(i)
		}
	}
	if err := os.WriteFile(filepath.Join(s.o.Sources.Manifests[0], "volumes.yaml"), s.w.documents(), 0o600); err != nil {
		s.w.report("the simulation works", "%v", err)
	}
	if s.job = s.r.IntN(2); s.job > 0 {
		s.putJob(s.job)
	}
	if s.cron = s.r.IntN(2); s.cron > 0 {
		s.putCron(s.cron)
	}
	if s.roll = max(0, s.r.IntN(4)-2); s.roll > 0 {
		s.putRoll(s.roll)
	}
	s.startServe()
	for range 3 + s.r.IntN(10) {
		s.pass(time.Duration(s.r.Int64N(int64(15 * time.Second))))
		s.event()
		if s.r.IntN(3) == 0 {
			s.w.disk.Sync()
		}
	}
	s.calm()
	s.clear()
	s.serve.kill()
	<-s.serve.done
}

// calm ends all faults, and waits until everything is as the manifests say.
func (s *simulation) calm() {
	for i := range s.pods {
		if s.pods[i].bad {
			s.pods[i].bad = false
			s.put(i)
		}
	}
	s.w.set(func() {
		s.w.step("* calm")
		s.w.faulty, s.w.away, s.webDown = false, false, false
		s.w.protected = map[pod.UID]bool{}
		s.w.calmDevices()
		s.w.beginDriver()
		s.serve.mortal = false
		for _, p := range s.onces {
			p.mortal = false
		}
	})
	s.await("once ends", func() string {
		for _, p := range s.onces {
			select {
			case <-p.done:
			default:
				return fmt.Sprintf("process %d works on", p.number)
			}
		}
		return ""
	})
	s.await("everything becomes as the manifests say", s.unsettled)
	s.withoutPlugin()
	s.withoutDriver()
	s.await("everything is as before", s.unsettled)
	if s.job > 0 {
		s.awaitFor(jobBound, "the Job is complete", s.w.jobSettled)
	}
	if s.cron > 0 && s.w.clockSet.IsZero() { // else the next times may have run
		s.awaitFor(3*simulatedEvery, "the CronJob goes on", s.w.cronGoesOn())
	}
	if s.roll > 0 {
		s.await("a roll-out or a roll-back ends", s.w.rollSettled)
	}
}

// unsettled says which pod is not as its manifest says.
func (s *simulation) unsettled() string {
	for i, of := range s.pods {
		if of.pod == nil {
			continue
		}
		if why := s.w.settled(of.pod); why != "" {
			return fmt.Sprintf("%s: %s", keyOfIndex(i), why)
		}
	}
	return ""
}

// jobBound is how long a Job may take: it waits up to ten minutes after it has failed again and again.
const jobBound = 30 * time.Minute

// clear removes all manifests, and has once remove its own pods.
func (s *simulation) clear() {
	for i := range s.pods {
		s.pods[i].pod = nil
		s.put(i)
	}
	s.putJob(0)
	s.putCron(0)
	s.putRoll(0)
	s.note("all manifests are taken away")
	s.await("nothing is left of the Job", func() string { return strings.Join(s.w.jobRemains(), ", ") })
	s.await("nothing is left of the CronJob", func() string { return strings.Join(s.w.cronRemains(), ", ") })
	s.await("nothing is left of the Deployment", func() string { return strings.Join(s.w.rollRemains(), ", ") })
	s.await("nothing is left of volumes", func() string { return s.w.mountedRemains("") })
	s.await("nothing is left after removal", func() string {
		for i := range servedPods + 2 {
			key := keyOfIndex(i)
			left := s.w.remains(key)
			if len(left) == 0 {
				continue
			}
			// What a once left is its own until somebody takes it.
			if i >= servedPods-1 && !s.w.serves(key) {
				<-s.runOnce([]*v1.Pod{randomPod(s.r, i, s.next(), v1.RestartPolicyNever)}, OnceOptions{Remove: true}, false).done
			}
			return fmt.Sprintf("%s: %s", key, strings.Join(left, ", "))
		}
		return ""
	})
}

// await waits until a rule holds, at most for the time that this may take.
func (s *simulation) await(rule string, missing func() string) { s.awaitFor(bound, rule, missing) }

// awaitFor is await with a time of its own.
func (s *simulation) awaitFor(bound time.Duration, rule string, missing func() string) {
	begun := time.Now()
	for {
		why := missing()
		if why == "" {
			return
		}
		if time.Since(begun) > bound {
			s.w.set(func() { s.w.report(rule, "not after %s: %s", bound, why) })
			return
		}
		s.pass(5 * time.Second)
	}
}

func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
