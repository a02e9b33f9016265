// Package record records what package workload decides from beside the documents: which pods of workloads
// exist, by their statuses, the runs of Jobs and the histories of CronJobs, which it stores. It decides nothing.
//
// Begin reading at Record.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

// Record records which pods of workloads exist, by the statuses that it passes on, and the runs of Jobs. It
// implements mux.Record and reconcile.Publisher. Its methods are safe for concurrent use.
type Record struct {
	reconcile.Publisher
	store *checkpoint.Store // nil: runs are not stored
	boot  string
	times
	log     *slog.Logger
	changed chan struct{}
	// requests ask for Jobs, and events gets what happens. Both may be nil.
	requests *owner.JobRequests
	events   Events

	mu     sync.Mutex
	exists map[pod.Key]string
	pods   map[pod.Key]jobs.Observed
	jobs   map[workload.ID]*jobs.History
	crons  map[workload.ID]*cronjobs.History
	trials
	// frozen are those whose stored history cannot be read, as of the time reread.
	frozen map[workload.ID]bool
	reread time.Time
	// unsure are those whose last change in the store has failed: it may have happened.
	unsure map[workload.ID]bool
	failed error // why the store could not be changed last
	// asked are the requests that the last Recorded has returned, and answered those that must not be made again.
	asked    []cronjobs.Request
	answered map[cronjobs.Request]bool
}

// Events records events. event.Recorder implements it.
type Events interface{ Record(e pod.Event) }

// New returns an empty Record that passes statuses on to a publisher.
func New(to reconcile.Publisher) *Record {
	return &Record{
		Publisher: to, times: newTimes(), log: slog.New(slog.DiscardHandler), changed: make(chan struct{}, 1),
		exists: map[pod.Key]string{}, pods: map[pod.Key]jobs.Observed{}, jobs: map[workload.ID]*jobs.History{},
		crons: map[workload.ID]*cronjobs.History{}, frozen: map[workload.ID]bool{},
		unsure: map[workload.ID]bool{}, answered: map[cronjobs.Request]bool{},
		trials: newTrials(),
	}
}

// Answer makes r answer requests for Jobs and to go back from revisions, and report what happens as events.
func (r *Record) Answer(requests *owner.JobRequests, undo *owner.UndoRequests, events Events) {
	r.requests, r.undo, r.events = requests, undo, events
}

// Run reports that there are requests, and when to read again what could not be read, until ctx ends.
func (r *Record) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- r.requests.Run(ctx) }()
	go func() { ended <- r.undo.Run(ctx) }()
	go notifyFrozen(ctx, r)
	for {
		select {
		case <-r.requests.Changed:
			r.notify()
		case <-r.undo.Changed:
			r.notify()
		case err := <-ended:
			return err
		}
	}
}

// At sets the boot and the wall clock by which runs are recorded, and returns r. nil is the machine's clock; another
// one is right. outage returns how long all outages of containerd were together: this time does not count for revisions
// that are being tried. It may be nil.
func (r *Record) At(boot string, wall func() time.Time, outage func() time.Duration, log *slog.Logger) *Record {
	r.boot, r.log = boot, log
	if outage != nil {
		r.outage = outage
	}
	if wall != nil {
		r.times = rightTimes(wall)
	}
	return r
}

// Recall adds what is stored of the pods of serve and of the runs of Jobs, and makes the store keep these.
// It returns all checkpoints.
func (r *Record) Recall(store *checkpoint.Store) (map[pod.Key][]*checkpoint.Checkpoint, error) {
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	for _, revisions := range all {
		if c := revisions[0]; c.Owner == owner.Serve {
			r.Add(c)
		}
	}
	return all, r.load(store)
}

// Add adds a pod that exists, of which c is the checkpoint.
func (r *Record) Add(c *checkpoint.Checkpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := c.Pod.Annotations[workload.Annotation]
	if of == "" {
		return
	}
	ended := len(c.Instances) > 0 && allOver(c)
	r.exists[c.Key()] = of
	if isJob(c.Pod) {
		r.pods[c.Key()] = jobs.Observed{Run: workload.RunOf(c.Pod), Ended: ended}
	}
}

// Forget forgets the runs of Jobs and the pods that were decided for them, so that they begin when they are decided
// next.
func (r *Record) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.jobs)
	clear(r.crons)
	clear(r.histories)
	clear(r.exists)
	clear(r.pods)
}

// Has reports that a pod of a workload exists.
func (r *Record) Has(key pod.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, exists := r.exists[key]
	return exists
}

func isJob(p *v1.Pod) bool {
	of, ok := workload.Of(p)
	return ok && of.Kind == workload.Job
}

// Recorded implements mux.Record.
func (r *Record) Recorded() workload.Recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	thaw(r)
	if step, is := r.step(); is {
		for id, h := range r.jobs {
			if shifted := h.Shifted(step); shifted != h {
				r.jobs[id], r.unsure[id] = shifted, true // to be stored, whatever is decided
			}
		}
	}
	r.asked = nil
	if r.requests != nil {
		old := func(q cronjobs.Request) bool { return r.answered[q] }
		r.asked = slices.DeleteFunc(slices.Clone(r.requests.All()), old)
	}
	return workload.Recorded{
		Requests: r.asked,
		Exists:   maps.Clone(r.exists), Pods: maps.Clone(r.pods),
		Running: r.running(), Tried: r.tried(), Undo: r.undone(), Newer: maps.Clone(r.newer),
		Histories: workload.Histories{
			Jobs: maps.Clone(r.jobs), CronJobs: maps.Clone(r.crons), Revisions: maps.Clone(r.histories),
		},
		Frozen: maps.Clone(r.frozen), Boot: r.boot, Now: r.wall(), Clock: r.trust(),
	}
}

// Save implements mux.Record.
func (r *Record) Save(all workload.Histories) (failed map[workload.ID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed = map[workload.ID]bool{}
	before := maps.Clone(r.crons)
	// What a CronJob starts is recorded before the run of the Job is.
	last := save(r, isCronJob, r.crons, all.CronJobs, failed)
	last = errors.Join(last, save(r, isOfJob, r.jobs, r.withNamed(all.Jobs, failed), failed))
	last = errors.Join(last, r.saveRevisions(all.Revisions, failed))
	if last != nil && !errtext.Same(last, r.failed) {
		r.log.Error("what a workload has done could not be recorded: nothing new is done for it; retrying", "err", last)
	}
	r.failed = last
	for id, h := range r.crons {
		r.answer(h)
		if r.events == nil || h == before[id] {
			continue
		}
		for _, e := range cronjobs.Events(before[id], h) {
			r.events.Record(pod.Event{
				Kind: string(id.Kind), Key: id.Key, Warning: e.Warning, Reason: e.Reason, Message: e.Message,
			})
		}
	}
	return failed
}

// withNamed returns runs with those that stay because the record of a CronJob that could not be changed names their
// Jobs: without its run, such a Job would run again. It adds these Jobs to failed.
func (r *Record) withNamed(
	runs map[workload.ID]*jobs.History, failed map[workload.ID]bool,
) map[workload.ID]*jobs.History {
	all := map[workload.ID]*jobs.History{}
	maps.Copy(all, runs)
	for id, h := range r.crons {
		if !failed[id] {
			continue
		}
		for _, made := range id.Made(h) {
			if runs[made] != nil {
				continue
			}
			failed[made] = true
			if run := r.jobs[made]; run != nil {
				all[made] = run
			}
		}
	}
	return all
}

// answer removes the requests whose Job a CronJob has. The Job is recorded, and no pod of it has begun.
func (r *Record) answer(h *cronjobs.History) {
	for _, q := range r.asked {
		if q.UID == h.UID && h.Has(q.Job) {
			r.answered[q] = true
			r.requests.Remove(q)
		}
	}
}

func isCronJob(k workload.Kind) bool { return k == workload.CronJob }
func isOfJob(k workload.Kind) bool   { return k == workload.Job }

// save makes the store, and stored, have the histories in all alone, of these kinds. It adds to failed those that could
// not be stored or removed, which must be tried again.
func save[H any](
	r *Record, of func(workload.Kind) bool, stored, all map[workload.ID]*H, failed map[workload.ID]bool,
) (last error) {
	known := maps.Clone(r.unsure)
	for id := range stored {
		known[id] = true
	}
	for id := range known {
		if !of(id.Kind) || all[id] != nil {
			continue
		}
		if err := r.remove(id); err != nil {
			failed[id], r.unsure[id], last = true, true, err
			continue
		}
		delete(stored, id)
		delete(r.unsure, id)
	}
	for id, history := range all {
		if !r.unsure[id] && reflect.DeepEqual(stored[id], history) {
			continue
		}
		if err := r.write(id, history); err != nil {
			failed[id], r.unsure[id], last = true, true, err
			continue
		}
		stored[id] = history
		delete(r.unsure, id)
	}
	return last
}

// remove removes a stored history. The caller holds mu, which is free meanwhile: a disk takes long.
func (r *Record) remove(id workload.ID) error {
	if r.store == nil {
		return nil
	}
	r.mu.Unlock()
	defer r.mu.Lock()
	return r.store.RemoveRun(runOf(id, nil))
}

// write stores a history. The caller holds mu, which is free meanwhile.
func (r *Record) write(id workload.ID, history any) error {
	if r.store == nil {
		return nil
	}
	text, err := json.Marshal(history)
	if err != nil {
		return fmt.Errorf("encoding the run of %s: %w", id, err)
	}
	r.mu.Unlock()
	defer r.mu.Lock()
	return r.store.SaveRun(runOf(id, text))
}

// runOf returns a history as it is stored.
func runOf(id workload.ID, text []byte) checkpoint.Run {
	run := checkpoint.Run{Namespace: id.Key.Namespace, Name: id.Key.Name, History: text}
	if id.Kind != workload.Job {
		run.Kind = string(id.Kind)
	}
	return run
}

// Sent implements mux.Record.
func (r *Record) Sent(pods map[pod.Key]*v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, p := range pods {
		if _, exists := r.exists[key]; !exists && isJob(p) {
			r.exists[key], r.pods[key] = p.Annotations[workload.Annotation], jobs.Observed{Run: workload.RunOf(p)}
		}
	}
	before := r.updating
	r.updating = updating(pods)
	if !maps.Equal(before, r.updating) {
		r.notify() // a status that came before was not told
	}
}

// Changed implements mux.Record.
func (r *Record) Changed() <-chan struct{} { return r.changed }

func (r *Record) notify() {
	select {
	case r.changed <- struct{}{}:
	default: // it was not received yet, and says the same
	}
}

// Publish implements reconcile.Publisher. What is decided from a status comes after it: the result of a Job must not be
// known before the statuses of its pods are.
func (r *Record) Publish(p *v1.Pod, seen time.Time, settled bool) error {
	err := r.Publisher.Publish(p, seen, settled)
	r.observe(p, seen)
	return err
}

func (r *Record) observe(p *v1.Pod, seen time.Time) {
	of, key := p.Annotations[workload.Annotation], pod.KeyOf(p)
	if !isJob(p) {
		r.try(p, seen)
	}
	if of == "" {
		return
	}
	ended := isJob(p) && r.ended(p)
	r.mu.Lock()
	r.exists[key] = of
	changed := false
	if isJob(p) {
		before := r.pods[key]
		changed = !sameForJob(before.Pod, p) || before.Ended != ended
		r.pods[key] = jobs.Observed{Run: workload.RunOf(p), Pod: p, Ended: ended}
	}
	r.mu.Unlock()
	if changed {
		r.notify()
	}
}

// ended reports that a pod has its result, and that its checkpoint says that nothing of it runs. A pod whose containers
// never started needs no checkpoint for that.
func (r *Record) ended(p *v1.Pod) bool {
	if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		return false
	}
	r.mu.Lock()
	store := r.store
	r.mu.Unlock()
	if store == nil {
		return true
	}
	c, err := store.Get(p.UID)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return true
	}
	return err == nil && allOver(c)
}

// allOver reports that none of the instances that are recorded may run. One that another program has removed from the
// engine has no exit: what was left of it has ended when its sandbox is removed.
func allOver(c *checkpoint.Checkpoint) bool {
	return !slices.ContainsFunc(c.Instances, func(i pod.Container) bool {
		return i.State != pod.Exited && (i.State != pod.Running || c.Sandbox(i.SandboxID) != nil)
	})
}

// sameForJob reports that two statuses of a pod mean the same for its Job.
func sameForJob(a, b *v1.Pod) bool {
	if a == nil || a.UID != b.UID || a.Status.Phase != b.Status.Phase || a.Status.Reason != b.Status.Reason {
		return false
	}
	states := func(p *v1.Pod) map[v1.PodConditionType]v1.ConditionStatus {
		all := map[v1.PodConditionType]v1.ConditionStatus{}
		for _, c := range p.Status.Conditions {
			all[c.Type] = c.Status
		}
		return all
	}
	return pod.Restarts(a) == pod.Restarts(b) && maps.Equal(states(a), states(b))
}

// Gone implements reconcile.Publisher.
func (r *Record) Gone(key pod.Key) error {
	r.mu.Lock()
	_, existed := r.exists[key]
	delete(r.exists, key)
	delete(r.pods, key)
	delete(r.seen, key)
	r.mu.Unlock()
	if existed {
		r.notify()
	}
	return r.Publisher.Gone(key)
}
