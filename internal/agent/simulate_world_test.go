package agent

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// world is the machine of one simulation: what really runs on it, whatever any podrun believes, and how everything on
// it behaves. All that is random follows from the seed and from what is done, not from when a goroutine runs.
type world struct {
	seed   uint64
	dirs   layout.Dirs
	engine *fake.Engine
	disk   *checkpoint.Memory
	begun  time.Time
	trace  func(line string)

	mu    sync.Mutex
	count map[string]uint64 // how often something was drawn
	// faulty says that calls fail, containers crash and probes say no.
	faulty bool
	// away says that the container engine cannot be reached.
	away      bool
	boot      int
	clock     time.Duration // how far the wall clock is ahead
	clockSet  time.Time     // when it was set last
	instances map[string]*instance
	keys      map[string]pod.Key // of which pod an ID is
	ids       map[string]bool    // every ID that was used
	uids      map[pod.UID]pod.Key
	// runs are the runs of the Job that were ever recorded, and when another one was or none; zero: the current one.
	runs map[string]time.Time
	// cronOf has which CronJob has recorded a Job of the name last, and cronRan which run of it has begun.
	cronOf, cronRan map[string]string
	// lives counts how often a revision's data was removed or lost: what is known of it begins anew.
	lives map[pod.UID]int
	// reruns is the last once that started something of the pod: what has completed runs again with each.
	reruns map[pod.Key]int
	// unsaved counts the changes of a checkpoint that failed, and torn has those of which a power cut left a part.
	unsaved map[pod.UID]int
	torn    map[pod.UID]bool
	// protected are the revisions of pods whose manifests cannot be read now.
	protected map[pod.UID]bool
	// left are the revisions that only once has manifests of.
	left map[pod.UID]bool
	// shown are the revisions whose volume has shown what its ConfigMap has.
	shown map[pod.UID]bool
	// seenEnded are the instances that a status has shown as ended.
	seenEnded map[string]bool
	restarts  map[string]int32 // the last restart counts that were published
	statuses  map[pod.Key]*v1.Pod
	rolls     rolls
	plugin    plugin
	csi       csiDriver
	broken    []string
	lines     []string // what was done, in order
}

// instance is one process of a container, as it really is.
type instance struct {
	id, name  string
	key       pod.Key
	pod       *v1.Pod
	spec      *v1.Container
	image     string // its ID
	sandbox   string
	attempt   int
	boot      int
	life      int
	rerun     int
	live      bool
	lost      bool // the engine forgot how it ended, or that it runs
	code      int
	began     time.Time
	ended     time.Time
	asked     time.Time // when podrun began to end it
	askedBy   *process
	told      time.Time // when it was sent its stop signal
	startupOK bool
	readyOK   bool
	devices   []string
	hooks     map[int]int // how often each process ran its preStop hook; 0: it tried to
}

func newWorld(seed uint64, dirs layout.Dirs) *world {
	return &world{
		seed: seed, dirs: dirs, engine: fake.NewEngine(bootName(0)), disk: checkpoint.NewMemory(nil), begun: time.Now(),
		trace: func(string) {}, count: map[string]uint64{}, faulty: true, instances: map[string]*instance{},
		keys: map[string]pod.Key{}, ids: map[string]bool{}, uids: map[pod.UID]pod.Key{}, lives: map[pod.UID]int{},
		runs: map[string]time.Time{}, cronOf: map[string]string{}, cronRan: map[string]string{},
		unsaved: map[pod.UID]int{}, torn: map[pod.UID]bool{},
		reruns: map[pod.Key]int{}, protected: map[pod.UID]bool{}, left: map[pod.UID]bool{}, shown: map[pod.UID]bool{}, seenEnded: map[string]bool{}, restarts: map[string]int32{}, statuses: map[pod.Key]*v1.Pod{},
		plugin: newPlugin(seed), csi: newCSIDriver(seed, dirs),
		rolls: rolls{ready: map[string]bool{}, pushed: map[string]bool{}},
	}
}

func bootName(n int) string { return fmt.Sprintf("boot-%d", n) }

// draw returns a random number for the n-th time that something happens.
func (w *world) draw(what string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drawn(what)
}

func (w *world) drawn(what string) uint64 {
	w.count[what]++
	return scatter(w.seed, what, w.count[what])
}

// scatter hashes a seed, a name and a number.
func scatter(seed uint64, what string, n uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(what))
	x := h.Sum64() ^ (seed+1)*0x9e3779b97f4a7c15 ^ n*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// chance reports yes in one of n cases, by a random number.
func chance(draw uint64, n uint64) bool { return draw>>16%n == 0 }

// between is a random duration, by a random number.
func between(draw uint64, least, most time.Duration) time.Duration {
	return least + time.Duration(draw%uint64(most-least))
}

// step adds to the trace. The caller holds mu.
func (w *world) step(line string) {
	line = strings.ReplaceAll(line, fmt.Sprintf("(process %d)", os.Getpid()), "(process)")
	line = fmt.Sprintf("%14.9f %s", time.Since(w.begun).Seconds(), line)
	w.lines = append(w.lines, line)
	w.trace(line)
}

// report notes down that a rule was broken. The caller holds mu.
func (w *world) report(rule, format string, args ...any) {
	line := fmt.Sprintf("%s: at %.3fs: %s", rule, time.Since(w.begun).Seconds(), fmt.Sprintf(format, args...))
	w.trace("BROKEN " + line)
	w.broken = append(w.broken, line)
}

// newID returns IDs that follow from the seed.
func (w *world) newID(of checkpointed.ID) string {
	what := fmt.Sprintf("id %s %s %d", of.UID, of.Container, of.Attempt)
	var bits [16]byte
	a, b := w.draw(what), w.draw(what)
	for i := range 8 {
		bits[i], bits[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	id := hex.EncodeToString(bits[:])
	w.set(func() { w.keys[id] = w.uids[of.UID] })
	return id
}

// live returns the living instances of a pod's container, in the order of their IDs. The caller holds mu.
func (w *world) live(key pod.Key, name string) (all []*instance) {
	for _, i := range w.instances {
		if i.live && i.key == key && (name == "" || i.name == name) {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b *instance) int { return a.began.Compare(b.began) })
	return all
}

// started takes note of a process that has just begun, and says how it will go on.
func (w *world) started(i *instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i.live, i.began, i.boot = true, time.Now(), w.boot
	i.life, i.rerun, i.hooks = w.lives[i.pod.UID], w.reruns[i.key], map[int]int{}
	w.step(fmt.Sprintf("  starts %s %s attempt %d in %.8s: %.8s", i.key.Name, i.name, i.attempt, i.sandbox, i.id))
	for _, rule := range startRules {
		if wrong := rule.check(w, i); wrong != "" {
			w.report(rule.name, "%s %s attempt %d (%.8s): %s", i.key, i.name, i.attempt, i.id, wrong)
		}
	}
	w.instances[i.id] = i
	if run, code, reason := w.course(i); run > 0 {
		time.AfterFunc(run, func() { w.exit(i, code, reason) })
	}
}

// unanswered lets a shim be killed between the start of its process, which ends with it, and its answer.
func (w *world) unanswered(i *instance) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.faulty || !i.live || !chance(w.drawn("unanswered "+i.id), 30) {
		return false
	}
	w.end(i, 137, "")
	w.engine.LoseTask(i.id)
	return true
}

// course says how long a process lives by itself and how it ends; 0: for ever. The caller holds mu.
func (w *world) course(i *instance) (run time.Duration, code int, reason string) {
	d := w.drawn(fmt.Sprintf("course %s %s %d", i.pod.UID, i.name, i.attempt))
	sidecar := i.spec.RestartPolicy != nil
	switch {
	case strings.HasPrefix(i.spec.Image, "bad-roll:") || strings.HasSuffix(i.image, badDigest):
		run, code = between(d, 100*time.Millisecond, 4*time.Second), 1
	case isInit(i) && !sidecar:
		run = between(d, 100*time.Millisecond, 4*time.Second)
		if w.faulty && chance(d, 6) {
			code = 1
		}
	case i.pod.Spec.RestartPolicy != v1.RestartPolicyAlways && !sidecar:
		run = between(d, 200*time.Millisecond, 30*time.Second)
		if w.faulty && chance(d, 3) {
			code = 3
		}
	case w.faulty && chance(d, 4):
		run = between(d, 100*time.Millisecond, time.Minute)
		code = int(d >> 8 % 2)
		if chance(d>>3, 3) {
			code, reason = 137, "OOMKilled"
		}
	}
	return run, code, reason
}

func isInit(i *instance) bool {
	return slices.ContainsFunc(i.pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == i.name })
}

// exit ends a process.
func (w *world) exit(i *instance, code int, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(i, code, reason)
}

func (w *world) end(i *instance, code int, reason string) {
	if !i.live {
		return
	}
	i.live, i.code, i.ended = false, code, time.Now()
	w.step(fmt.Sprintf("  ends %s %s %.8s: %d %s", i.key.Name, i.name, i.id, code, reason))
	w.engine.ExitFor(i.id, code, reason)
}

// signal sends a signal to a process.
func (w *world) signal(id, signal string, from *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.instances[id]
	if i == nil || !i.live || i.lost {
		return
	}
	w.step(fmt.Sprintf("  signal %s to %s %s %.8s", signal, i.key.Name, i.name, id))
	if from.command == owner.Once {
		delete(w.protected, i.pod.UID) // its manifests say otherwise, and what it began goes on when it dies
	}
	for _, rule := range signalRules {
		if wrong := rule.check(w, i, signal, from); wrong != "" {
			w.report(rule.name, "%s %s (%.8s), %s: %s", i.key, i.name, i.id, signal, wrong)
		}
	}
	if signal == "SIGKILL" {
		w.end(i, 137, "")
		return
	}
	if i.told.IsZero() {
		i.told = time.Now()
	}
	if d := w.drawn("deaf " + string(i.pod.UID) + i.name); !w.deaf(i) {
		time.AfterFunc(between(d, time.Millisecond, 3*time.Second), func() { w.exit(i, 143, "") })
	}
}

// asking takes note that an instance is asked to end, whether or not that reaches it.
func (w *world) asking(id string, by *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.instances[id]; i != nil && i.asked.IsZero() {
		i.asked, i.askedBy = time.Now(), by
	}
}

// deaf reports that a container does not end on its stop signal.
func (w *world) deaf(i *instance) bool {
	return chance(scatter(w.seed, "deaf "+string(i.pod.UID)+i.name, 0), 5)
}

// exec is what a command does in a container.
func (w *world) exec(ctx context.Context, id string, command []string) (int, error) {
	w.mu.Lock()
	i := w.instances[id]
	faulty := w.faulty
	d := w.drawn("exec " + id + command[0])
	w.mu.Unlock()
	wait, code := between(d, time.Millisecond, 300*time.Millisecond), 0
	if faulty {
		switch {
		case chance(d>>2, 25):
			wait = time.Hour // until it is killed
			if command[0] == "post" {
				wait = time.Minute // nothing kills it
			}
		case command[0] == "startup" && chance(d>>4, 2), command[0] == "live" && chance(d>>4, 12), chance(d>>4, 6):
			code = 1
		}
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(wait):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i == nil || !i.live {
		return 137, nil
	}
	if code == 0 {
		i.startupOK = i.startupOK || command[0] == "startup"
		i.readyOK = i.readyOK || command[0] == "ready"
	}
	return code, nil
}

// forgetTasks restarts the container engine without its memory: the processes run on.
func (w *world) forgetTasks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step("the engine loses its memory")
	for _, id := range slices.Sorted(maps.Keys(w.instances)) {
		w.instances[id].lost = true
		w.engine.LoseTask(id)
	}
}

// killRemains ends what the engine forgot.
func (w *world) killRemains(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.instances[id]; i != nil {
		w.end(i, 137, "")
	}
}

// powerOff ends everything; lose says that what was written last to the disk is lost.
func (w *world) powerOff(lose bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boot++
	w.step("boot " + bootName(w.boot))
	for _, i := range w.instances {
		i.lost = true
		if i.live {
			i.live, i.code, i.ended = false, 137, time.Now()
		}
	}
	w.engine.Reboot(bootName(w.boot))
	clear(w.protected) // what had completed begins anew
	w.plugin.remembered = nil
	if w.plugin.up {
		w.endPlugin()
	}
	w.unmountAll()
	if !lose {
		return
	}
	lost := w.disk.PowerCut(func(uid pod.UID) bool {
		return chance(scatter(w.seed, "lose "+string(uid), uint64(w.boot)), 3)
	})
	for _, uid := range lost {
		draw := scatter(w.seed, "tear "+string(uid), uint64(w.boot))
		if !chance(draw, 3) {
			continue
		}
		text, _, _ := w.disk.Read(uid)
		w.disk.Corrupt(uid, text[:len(text)/2*int(draw>>8%2)]) // nothing, or a half
		w.step("torn " + string(uid))
	}
	all, _ := w.disk.List()
	for _, uid := range all { // what was torn before may be back
		if text, _, _ := w.disk.Read(uid); !json.Valid(text) {
			w.torn[uid] = true
		}
	}
	for uid := range w.uids {
		w.forget(uid)
	}
}

// forget begins anew with what is known of a revision. The caller holds mu.
func (w *world) forget(uid pod.UID) {
	w.lives[uid]++
	delete(w.shown, uid)
	for _, c := range []string{"i", "j", "s", "a", "b"} {
		delete(w.restarts, string(uid)+c)
	}
}

// setClock sets the wall clock.
func (w *world) setClock(ahead time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock, w.clockSet = ahead, time.Now()
	w.step("the clock is ahead by " + ahead.String())
	w.engine.SetClock(ahead)
}

// set changes the world.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// published hears each status.
func (w *world) published(p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rule := range statusRules {
		if wrong := rule.check(w, p); wrong != "" {
			w.report(rule.name, "%s: %s", pod.KeyOf(p), wrong)
		}
	}
	w.statuses[pod.KeyOf(p)] = p
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		w.trace(fmt.Sprintf("  status %s %s %d %.20s", p.Name, s.Name, s.RestartCount, s.ContainerID))
	}
}
