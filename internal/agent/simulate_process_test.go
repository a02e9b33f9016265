package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	goruntime "runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// process is one podrun: its way to the engine and the disk, on which calls fail, hang and come late, and which ends
// when it is killed.
type process struct {
	fake.Driver
	w      *world
	number int
	// command is owner.Serve or owner.Once.
	command string
	born    time.Time
	locks   *owner.Locks
	dead    chan struct{}
	die     sync.Once
	// mortal says that it may be killed in the middle of a call. Guarded by w.mu.
	mortal  bool
	store   *checkpoint.Store
	devices *device.Devices
	// made are the sandboxes that it has made, or tried to.
	made sync.Map
	// atDeath is what was on the disk of their devices when it was killed.
	atDeath map[string]string
	// csiAtDeath is what it had recorded of volumes when it was killed.
	csiAtDeath map[string]string
}

func newProcess(w *world, number int, command string, mortal bool) *process {
	return &process{
		Driver: w.engine.Driver(), w: w, number: number, command: command, born: time.Now(), dead: make(chan struct{}), mortal: mortal,
		locks: owner.NewLocks(w.dirs, command),
	}
}

// backend puts the real layers on the process's driver and disk.
func (p *process) backend(log *slog.Logger) connection.Backend {
	p.store = checkpoint.NewStoreOn(processDisk{p.w.disk, p}, log)
	p.connect(device.Options{})
	return checkpointed.New(checkpointed.Options{
		Driver: p, Store: p.store, Boot: p.w.engine.Boot, Dirs: p.w.dirs,
		Wall: p.w.engine.Wall, NewID: p.w.newID, Log: log,
	})
}

// kill ends the process: nothing that it does from now on has an effect, and the kernel drops its locks.
func (p *process) kill() {
	p.die.Do(func() {
		p.atDeath, p.csiAtDeath = p.deviceFiles(), p.csiFiles()
		close(p.dead)
		p.locks.Close()
	})
}

func (p *process) killed() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// errFault is what calls fail with.
var errFault = errors.New("fault")

// mortality is in how many calls of a mortal process it is killed.
const mortality = 150

// longestHang is more than any caller waits.
const longestHang = 5 * time.Minute

// enter is the beginning of each call. It takes a time of its own, so that no two goroutines go on at one instant.
// late is how the call fails after its effect.
func (p *process) enter(ctx context.Context, call, object string) (late, err error) {
	what := fmt.Sprintf("%d %s %s", p.number, call, object)
	d := p.w.draw(what + callers())
	wait, hang := time.Duration(d%(16<<20)), false
	p.w.mu.Lock()
	if p.w.faulty {
		switch f := d >> 32 % 200; {
		case f < 6:
			err = fmt.Errorf("%s: %w", call, errFault)
		case f < 9:
			err = fmt.Errorf("%s: %w", call, runtime.ErrUnavailable)
		case f < 14:
			late = fmt.Errorf("%s: %w", call, errFault)
		case f < 18:
			wait += between(d, 100*time.Millisecond, 20*time.Second)
		case f < 20:
			wait, hang = wait+longestHang, true
		}
	}
	p.w.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.dead:
		return nil, fake.ErrCut
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
	}
	if p.killed() {
		return nil, fake.ErrCut
	}
	p.w.mu.Lock()
	if p.mortal && chance(d>>24, mortality) {
		defer p.kill()
		err = fake.ErrCut
	}
	if p.w.away && err == nil {
		err = fmt.Errorf("%s: %w", call, runtime.ErrUnavailable)
	}
	line := what
	if late != nil || err != nil {
		line += fmt.Sprintf(" -> %v, late %v", err, late)
	}
	p.w.step(line)
	p.w.mu.Unlock()
	if hang && err == nil {
		late = context.DeadlineExceeded
	}
	return late, err
}

// callers stands for the functions that a call comes from: two goroutines may make the same call at one instant, and
// each has random numbers of its own.
func callers() string {
	var at [6]uintptr
	n := goruntime.Callers(3, at[:])
	if known, is := callersAt.Load(at); is {
		return known.(string)
	}
	all := fnv.New64a()
	for frames, more := goruntime.CallersFrames(at[:n]), true; more; {
		var frame goruntime.Frame
		frame, more = frames.Next()
		_, _ = io.WriteString(all, frame.Function)
	}
	found := fmt.Sprintf(" %x", all.Sum64())
	callersAt.Store(at, found)
	return found
}

// callersAt remembers what callers has found, by where the calls return to.
var callersAt sync.Map

// mutate makes a change of a pod's.
func (p *process) mutate(ctx context.Context, call, object string, key pod.Key, change func() error) error {
	late, err := p.enter(ctx, call, object)
	if err != nil {
		return err
	}
	p.owns(key, call)
	if err := change(); err != nil {
		return err
	}
	return late
}

// owns checks the pod's lock.
func (p *process) owns(key pod.Key, call string) {
	if !p.locks.Owns(key) && !p.killed() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.w.report("no change without the pod's lock", "process %d: %s of %s", p.number, call, key)
	}
}

func (p *process) keyOf(id string) pod.Key {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.keys[id]
}

// use takes note of an ID that something is made with.
func (p *process) use(id string, key pod.Key) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.ids[id] {
		p.w.report("an ID is used once", "%s of %s", id, key)
	}
	p.w.ids[id] = true
}

func (p *process) Wakeups(ctx context.Context) (<-chan runtime.Wakeup, error) {
	if _, err := p.enter(ctx, "Rings", ""); err != nil {
		return nil, err
	}
	in, err := p.Driver.Wakeups(ctx)
	if err != nil {
		return nil, err
	}
	out := make(chan runtime.Wakeup, 1000)
	go p.pass(ctx, in, out)
	return out, nil
}

// Watch tells of the end of a process, always: the kernel does.
func (p *process) Watch(pid int, ended func()) bool {
	wait := time.Duration(p.w.draw(fmt.Sprintf("%d end of %d", p.number, pid)) % (8 << 20))
	return p.w.engine.Watch(pid, func() {
		time.AfterFunc(wait, func() {
			if !p.killed() {
				ended()
			}
		})
	})
}

// pass hands on events: it loses some, doubles some and delays some.
func (p *process) pass(ctx context.Context, in <-chan runtime.Wakeup, out chan<- runtime.Wakeup) {
	defer close(out)
	for r := range in {
		what := fmt.Sprintf("%d event %s", p.number, r.Key)
		d := p.w.draw(what)
		wait, copies := time.Duration(d%(8<<20)), 1
		p.w.mu.Lock()
		if p.w.faulty {
			switch d >> 32 % 20 {
			case 0:
				copies = 0
			case 1:
				copies = 2
			case 2:
				wait += between(d, time.Second, 5*time.Second)
			}
		}
		p.w.mu.Unlock()
		select {
		case <-p.dead:
			return
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		for range copies {
			select {
			case out <- r:
			default:
			}
		}
	}
}

func (p *process) ListContainers(ctx context.Context) (map[pod.Key][]pod.Container, error) {
	late, err := p.enter(ctx, "ListContainers", "")
	if err != nil {
		return nil, err
	}
	if late != nil {
		return nil, late
	}
	return p.Driver.ListContainers(ctx)
}

func (p *process) InspectContainers(ctx context.Context, key pod.Key, ids []string) ([]pod.Container, error) {
	late, err := p.enter(ctx, "InspectContainers", key.Name)
	if err != nil {
		return nil, err
	}
	found, err := p.Driver.InspectContainers(ctx, key, ids)
	if err != nil || late != nil {
		return nil, errors.Join(err, late)
	}
	// Here it may take long until the answer arrives.
	if _, err := p.enter(ctx, "Inspected", key.Name); err != nil {
		return nil, err
	}
	return found, nil
}

func (p *process) CreateSandbox(ctx context.Context, q *v1.Pod, s pod.Sandbox) (made pod.Sandbox, err error) {
	p.use(s.ID, pod.KeyOf(q))
	p.made.Store(s.ID, true)
	if err := p.acquire(ctx, q, s.ID); err != nil {
		return made, err
	}
	err = p.mutate(ctx, "CreateSandbox", q.Name, pod.KeyOf(q), func() (err error) {
		if made, err = p.Driver.CreateSandbox(ctx, q, s); err == nil {
			p.holding(s.ID)
		}
		return err
	})
	return made, err
}

func (p *process) RemoveSandbox(ctx context.Context, key pod.Key, s pod.Sandbox, last bool) error {
	err := p.mutate(ctx, "RemoveSandbox", key.Name, key, func() error { return p.Driver.RemoveSandbox(ctx, key, s, last) })
	if err != nil {
		return err
	}
	return p.mutate(ctx, "release", key.Name, key, func() error { return p.devices.Release(s.ID) })
}

func (p *process) StartContainer(ctx context.Context, s runtime.Start) error {
	key := pod.KeyOf(s.Pod)
	p.use(s.ID, key)
	i := &instance{
		id: s.ID, name: s.Container.Name, key: key, pod: s.Pod, spec: s.Container, sandbox: s.Sandbox.ID, attempt: s.Attempt,
		image: s.Image.ID,
	}
	late, err := p.enter(ctx, "StartContainer", key.Name+" "+i.name)
	if err != nil {
		return err
	}
	p.owns(key, "StartContainer")
	if i.devices, err = p.given(ctx, s); err != nil {
		return err
	}
	var cut error
	recorded := s.Started
	s.Started = func(user string) error {
		if err := recorded(user); err != nil {
			return err
		}
		if _, cut = p.enter(ctx, "start task", key.Name+" "+i.name); cut != nil {
			return fake.ErrCut // the engine keeps what it has
		}
		return nil
	}
	if err := p.Driver.StartContainer(ctx, s); cut != nil {
		return fmt.Errorf("%w: %w", runtime.ErrCutOff, cut)
	} else if err != nil {
		return err
	}
	if p.command == owner.Once {
		p.w.set(func() { p.w.reruns[key] = p.number })
	}
	p.w.started(i)
	if late != nil {
		return fmt.Errorf("%w: %w", runtime.ErrCutOff, late)
	}
	if p.w.unanswered(i) {
		return &runtime.StartError{Err: errors.New("the shim was killed"), Unknown: true}
	}
	return nil
}

func (p *process) ResizeContainer(ctx context.Context, r runtime.Resize) error {
	return p.mutate(ctx, "ResizeContainer", r.Pod.Name+" "+r.Container.Name, pod.KeyOf(r.Pod), func() error {
		return p.Driver.ResizeContainer(ctx, r)
	})
}

func (p *process) SignalContainer(ctx context.Context, id, signal string) error {
	if signal != "SIGKILL" {
		p.w.asking(id, p)
	}
	return p.mutate(ctx, "SignalContainer", id+" "+signal, p.keyOf(id), func() error {
		p.w.signal(id, signal, p)
		return nil
	})
}

func (p *process) KillRemains(ctx context.Context, _ pod.Key, c pod.Container) error {
	return p.mutate(ctx, "KillRemains", c.ID, p.keyOf(c.ID), func() error {
		p.w.killRemains(c.ID)
		return nil
	})
}

func (p *process) ReapContainer(ctx context.Context, id string) error {
	return p.mutate(ctx, "ReapContainer", id, p.keyOf(id), func() error { return p.Driver.ReapContainer(ctx, id) })
}

func (p *process) RemoveContainer(ctx context.Context, c pod.Container, begun time.Time) error {
	return p.mutate(ctx, "RemoveContainer", c.ID, p.keyOf(c.ID), func() error {
		p.w.removing(c.ID)
		return p.Driver.RemoveContainer(ctx, c, begun)
	})
}

func (p *process) RemovePod(ctx context.Context, key pod.Key, uid pod.UID) error {
	return p.mutate(ctx, "RemovePod", string(uid), key, func() error {
		p.w.removingPod(uid, p)
		return p.Driver.RemovePod(ctx, key, uid)
	})
}

func (p *process) Resolve(ctx context.Context, ref string) (pod.Image, error) {
	if late, err := p.enter(ctx, "Resolve", ref); err != nil || late != nil {
		return pod.Image{}, errors.Join(err, late)
	}
	return p.Driver.Resolve(ctx, ref)
}

func (p *process) Pull(ctx context.Context, ref string, logins ...[]byte) (pod.Image, error) {
	if late, err := p.enter(ctx, "Pull", ref); err != nil || late != nil {
		return pod.Image{}, errors.Join(err, late)
	}
	return p.Driver.Pull(ctx, ref, logins...)
}

func (p *process) RegistryDigest(ctx context.Context, ref string, logins ...[]byte) (string, error) {
	if late, err := p.enter(ctx, "RegistryDigest", ref); err != nil || late != nil {
		return "", errors.Join(err, late)
	}
	return p.Driver.RegistryDigest(ctx, ref, logins...)
}

func (p *process) Exec(ctx context.Context, id string, cmd []string, streams runtime.ExecIO) (int, error) {
	pre := cmd[0] == "pre"
	if pre {
		p.w.preStop(id, p, 0)
	}
	late, err := p.enter(ctx, "Exec", id+" "+cmd[0])
	if err != nil {
		return 0, err
	}
	p.owns(p.keyOf(id), "Exec")
	if pre {
		p.w.preStop(id, p, 1)
	}
	if pre && p.mortal {
		p.kill() // while it runs: half of all processes are mortal, and it takes three to see a hook run too often
	}
	code, err := p.Driver.Exec(ctx, id, cmd, streams)
	if err == nil {
		err = late
	}
	if p.killed() {
		return 0, fake.ErrCut
	}
	return code, err
}

// processDisk is the disk as one process has it. It takes no time: callers hold locks.
type processDisk struct {
	*checkpoint.Memory
	p *process
}

func (d processDisk) List() ([]pod.UID, error) {
	if d.p.killed() {
		return nil, fake.ErrCut
	}
	return d.Memory.List()
}

func (d processDisk) Stat(uid pod.UID) (checkpoint.Stamp, error) {
	if d.p.killed() {
		return checkpoint.Stamp{}, fake.ErrCut
	}
	return d.Memory.Stat(uid)
}

// enter is the beginning of each change; late is how it fails after its effect.
func (d processDisk) enter(call string, uid pod.UID) (late, err error) {
	w := d.p.w
	w.mu.Lock()
	key := w.uids[uid]
	what := fmt.Sprintf("%d %s %s", d.p.number, call, uid)
	draw := w.drawn(what)
	if d.p.killed() {
		w.mu.Unlock()
		return nil, fake.ErrCut
	}
	if w.faulty {
		switch draw >> 32 % 100 {
		case 0, 1:
			err = fmt.Errorf("%s: no space: %w", call, errFault)
		case 2:
			late = fmt.Errorf("%s: input/output error: %w", call, errFault)
		}
	}
	if d.p.mortal && chance(draw>>24, mortality) {
		defer d.p.kill()
		if chance(draw, 2) {
			err = fake.ErrCut
		}
		late = fake.ErrCut
	}
	w.step(fmt.Sprintf("%s -> %v, late %v", what, err, late))
	if err != nil {
		w.unsaved[uid]++
	}
	w.mu.Unlock()
	if err == nil {
		d.p.owns(key, call)
	}
	return late, err
}

func (d processDisk) Create(uid pod.UID, data []byte) (checkpoint.Stamp, error) {
	d.p.w.learnUID(uid, data)
	late, err := d.enter("create", uid)
	if err != nil {
		return checkpoint.Stamp{}, err
	}
	stamp, err := d.Memory.Create(uid, data)
	if err == nil {
		d.p.w.set(func() { delete(d.p.w.torn, uid) })
		err = late
	}
	return stamp, err
}

func (d processDisk) WriteRun(name string, data []byte) error {
	late, err := d.enterRun("write run " + name)
	if err == nil {
		err = d.Memory.WriteRun(name, data)
		d.p.w.learnRun()
		d.p.w.learnCron()
	}
	if err == nil {
		err = late
	}
	return err
}

func (d processDisk) RemoveRun(name string) error {
	late, err := d.enterRun("remove run " + name)
	if err == nil {
		err = d.Memory.RemoveRun(name)
		d.p.w.learnRun()
		d.p.w.learnCron()
	}
	if err == nil {
		err = late
	}
	return err
}

// enterRun is the beginning of each change of a Job's run; late is how it fails after its effect.
func (d processDisk) enterRun(call string) (late, err error) {
	w := d.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	what := fmt.Sprintf("%d %s", d.p.number, call)
	draw := w.drawn(what)
	if d.p.killed() {
		return nil, fake.ErrCut
	}
	if w.faulty {
		switch draw >> 32 % 20 {
		case 0:
			err = fmt.Errorf("%s: no space: %w", call, errFault)
		case 1:
			late = fmt.Errorf("%s: input/output error: %w", call, errFault)
		}
	}
	if d.p.mortal && chance(draw>>24, mortality/10) {
		defer d.p.kill()
		if chance(draw, 2) {
			err = fake.ErrCut
		}
		late = fake.ErrCut
	}
	w.step(fmt.Sprintf("%s -> %v, late %v", what, err, late))
	return late, err
}

func (d processDisk) Write(uid pod.UID, data []byte) (checkpoint.Stamp, error) {
	return d.write(uid, data, d.Memory.Write)
}

func (d processDisk) WriteDurable(uid pod.UID, data []byte) (checkpoint.Stamp, error) {
	return d.write(uid, data, d.Memory.WriteDurable)
}

func (d processDisk) write(
	uid pod.UID, data []byte, to func(pod.UID, []byte) (checkpoint.Stamp, error),
) (checkpoint.Stamp, error) {
	late, err := d.enter("write", uid)
	if err != nil {
		return checkpoint.Stamp{}, err
	}
	if _, missing := d.Memory.Stat(uid); missing != nil {
		d.p.w.set(func() { d.p.w.forget(uid) })
	}
	stamp, err := to(uid, data)
	if err == nil {
		err = late
	}
	return stamp, err
}

func (d processDisk) Remove(ctx context.Context, uid pod.UID) error {
	late, err := d.enter("remove", uid)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(d.p.w.dirs.Pod(uid)); err != nil {
		return err
	}
	if err := d.Memory.Remove(ctx, uid); err != nil {
		return err
	}
	d.p.w.set(func() { d.p.w.forget(uid) })
	return late
}
