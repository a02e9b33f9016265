package reconcile_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// house is a whole podrun on an in-memory runtime.
type house struct {
	t       *testing.T
	rt      *fake.Runtime
	board   *board
	desired chan manifest.Desired
	stop    func()
	o       reconcile.Options
	events  events
}

// events records the events, one per line.
type events struct {
	mu    sync.Mutex
	lines []string
}

func (e *events) Record(event pod.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kind := "normal"
	if event.Warning {
		kind = "warning"
	}
	e.lines = append(e.lines, strings.TrimSpace(fmt.Sprintf("%s %s %s/%s: %s", kind, event.Reason, event.Key.Name, event.Container, event.Message)))
}

// take returns the events since its last call.
func (e *events) take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := strings.Join(e.lines, "\n")
	e.lines = nil
	return text
}

// board records the last status of each pod.
type board struct {
	mu   sync.Mutex
	pods map[pod.Key]*v1.Pod
	deaf error // what all of its methods fail with, without effect
}

func (b *board) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deaf = err
}

func (b *board) Publish(p *v1.Pod, _ time.Time, _ bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deaf == nil {
		b.pods[pod.KeyOf(p)] = p
	}
	return b.deaf
}

func (b *board) Gone(key pod.Key) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deaf == nil {
		delete(b.pods, key)
	}
	return b.deaf
}

// NotOwned records that another process owns the pod.
func (b *board) NotOwned(key pod.Key, p *v1.Pod, why *plan.Waiting) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p != nil && why != nil {
		p = p.DeepCopy()
		p.Status.Reason, p.Status.Message = why.Reason, why.Message
		b.pods[key] = p
	} else if shown := b.pods[key]; shown != nil && slices.Contains([]string{"OwnedByOther", "FailedLock"}, shown.Status.Reason) {
		delete(b.pods, key)
	}
	return b.deaf
}

func (b *board) get(name string) *v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods[pod.Key{Namespace: "default", Name: name}]
}

type noVolumes struct{}

func (noVolumes) Mount(context.Context, pod.Inside) error                      { return nil }
func (noVolumes) Setup(context.Context, pod.Inside) ([]pod.Mount, error)       { return nil, nil }
func (noVolumes) Files(*v1.Pod, []pod.FileKey) (map[pod.FileKey]string, error) { return nil, nil }
func (noVolumes) Refresh(context.Context, pod.Inside) error                    { return nil }
func (noVolumes) Teardown(context.Context, pod.UID) error                      { return nil }
func (noVolumes) Ended(context.Context, pod.UID) error                         { return nil }
func (noVolumes) Published(pod.UID) bool                                       { return false }

type noLogs struct{}

func (noLogs) Follow(pod.Instance, int)                   {}
func (noLogs) Finish(context.Context, pod.Instance) error { return nil }
func (noLogs) LastOutput(_ context.Context, i pod.Instance) string {
	return "the end of " + i.Container
}
func (noLogs) RemoveLogs(pod.Instance) error { return nil }
func (noLogs) Forget(pod.UID)                {}

func noAddress() string { return "" }

// start runs a loop and its relister on rt until the returned house is stopped.
func start(t *testing.T, rt *fake.Runtime, options ...func(*reconcile.Options)) *house {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	h := &house{t: t, rt: rt, board: &board{pods: map[pod.Key]*v1.Pod{}}, desired: make(chan manifest.Desired)}
	ctx, cancel := context.WithCancel(t.Context())
	looker := relist.New(relist.Options{Lister: rt, Notifier: rt, Log: log})
	h.o = reconcile.Options{Inspector: looker, Sandboxes: rt, Containers: rt, Images: rt, Data: rt, Volumes: noVolumes{}, Logs: noLogs{},
		HostIP: noAddress, ProbeIP: noAddress, Publisher: h.board, Owner: "serve", Boot: "boot-1", Log: log, Terminates: func(pod.Observed) bool { return true }}
	found := make(chan pod.Key)
	h.o.Events = &h.events
	prober := probe.New(probe.Options{Exec: rt, Log: log, Events: &h.events})
	h.o.Prober, h.o.Results = prober, found
	for _, option := range options {
		option(&h.o)
	}
	events := make(chan relist.Event)
	var running sync.WaitGroup
	lctx, stopListing := context.WithCancel(context.WithoutCancel(ctx))
	running.Go(func() {
		defer stopListing()
		if err := reconcile.NewLoop(h.o).Run(ctx, h.desired, events); !errors.Is(err, context.Canceled) {
			t.Errorf("loop ended with %v", err)
		}
	})
	running.Go(func() { _ = looker.Run(lctx, events) })
	running.Go(func() { _ = prober.Run(lctx, found) })
	h.stop = func() { cancel(); running.Wait() }
	return h
}

func (h *house) want(pods ...*v1.Pod) {
	h.desired <- desired(pods...)
	synctest.Wait()
}

func desired(pods ...*v1.Pod) manifest.Desired {
	d := manifest.Desired{Pods: map[pod.Key]*v1.Pod{}, Complete: true}
	for _, p := range pods {
		d.Pods[pod.KeyOf(p)] = p
	}
	return d
}

// after lets virtual time pass and waits until all goroutines are idle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// living returns the IDs of the running instances.
func (h *house) living() string {
	all, err := h.rt.List(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	var ids []string
	for _, o := range all {
		for _, c := range o.Containers {
			if c.State == pod.Running {
				ids = append(ids, c.ID)
			}
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func (h *house) wantLiving(ids string) {
	h.t.Helper()
	if got := h.living(); got != ids {
		h.t.Errorf("running: %q, want %q", got, ids)
	}
}

func (h *house) wantEmpty() {
	h.t.Helper()
	if all, _ := h.rt.List(h.t.Context()); len(all) > 0 {
		h.t.Errorf("left over: %+v", all)
	}
}

func newPod(name string, uid pod.UID, policy v1.RestartPolicy, containers ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", name, uid
	p.Annotations = map[string]string{manifest.AnnotationSource: "file", manifest.AnnotationManifest: "/m/" + name + ".yaml"}
	p.Spec.RestartPolicy = policy
	grace := int64(30)
	p.Spec.TerminationGracePeriodSeconds = &grace
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c, Image: c + ":1", ImagePullPolicy: v1.PullIfNotPresent})
	}
	return p
}

func runtimeWith(images map[string]fake.Script) *fake.Runtime {
	rt := fake.New("boot-1")
	for ref, s := range images {
		rt.AddImage(ref, s)
	}
	return rt
}

func web() *v1.Pod { return newPod("web", "u1", v1.RestartPolicyAlways, "a") }

func forever() *fake.Runtime { return runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}}) }

func TestStartDeathRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"))
		h.wantLiving("u1-a-0 u1-b-0")
		h.rt.Exit("u1-a-0", 137)
		synctest.Wait()
		h.wantLiving("u1-a-1 u1-b-0")
		s := h.board.get("web").Status.ContainerStatuses[0]
		if s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 137 || s.State.Running == nil {
			t.Errorf("status after a restart: %+v", s)
		}
	})
}

func TestCrashLoopGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second, Exit: 1}}))
		defer h.stop()
		begin := time.Now()
		h.want(web())
		var starts []time.Duration
		for last := ""; len(starts) < 8; after(100 * time.Millisecond) {
			if now := h.living(); now != "" && now != last {
				last = now
				starts = append(starts, time.Since(begin).Truncate(time.Second))
			}
		}
		var want []time.Duration
		for _, seconds := range []int{0, 1, 12, 33, 74, 155, 316, 617} {
			want = append(want, time.Duration(seconds)*time.Second)
		}
		if !slices.Equal(starts, want) {
			t.Errorf("starts at %v, want %v", starts, want)
		}
	})
}

func TestBackoffAndCountSurviveRestartOfPodrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second, Exit: 1}})
		h := start(t, rt)
		h.want(web())
		after(13 * time.Second) // third instance has ended at 13 s; the next is due at 33 s
		h.stop()
		after(5 * time.Second)
		h = start(t, rt)
		defer h.stop()
		h.want(web())
		after(10 * time.Second)
		h.wantLiving("")
		if got := h.board.get("web").Status.ContainerStatuses[0]; got.State.Waiting == nil || got.State.Waiting.Reason != "CrashLoopBackOff" || got.RestartCount != 2 {
			t.Errorf("status: %+v", got)
		}
		after(5500 * time.Millisecond)
		h.wantLiving("u1-a-3")
	})
}

// wantLeaving checks whether the pod was published as being terminated for good.
func (h *house) wantLeaving(name string, want bool) {
	h.t.Helper()
	if got := h.board.get(name).DeletionTimestamp != nil; got != want {
		h.t.Errorf("%s is being ended: %v, want %v", name, got, want)
	}
}

func TestDeleteGraceKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		h.rt.IgnoreTerm("a")
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"))
		h.want()
		h.wantLiving("u1-a-0") // b obeyed
		h.wantLeaving("web", true)
		after(29 * time.Second)
		h.wantLiving("u1-a-0")
		after(time.Second)
		h.wantLiving("")
		h.wantEmpty()
		if h.board.get("web") != nil {
			t.Error("status is still there")
		}
	})
}

func TestEditStopsTheOldFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		h.rt.IgnoreTerm("a")
		h.want(web())
		edit := func(uid pod.UID) *v1.Pod {
			p := newPod("web", uid, v1.RestartPolicyAlways, "a")
			p.Labels = map[string]string{"edit": string(uid)}
			p.Spec.Containers[0].Args = []string{string(uid)}
			return p
		}
		h.want(edit("u2"))
		after(10 * time.Second)
		h.want(edit("u3")) // the last edit wins; the one between never runs
		after(19 * time.Second)
		h.wantLiving("u1-a-0")
		after(time.Second)
		h.wantLiving("u3-a-0")
		for _, call := range h.rt.Calls() {
			if strings.HasPrefix(call, "StartContainer u2") {
				t.Error("an edit that was overtaken has run")
			}
		}
	})
}

func TestDeleteAndCreateAgainWhileTerminating(t *testing.T) {
	for _, times := range []int{1, 2, 3} {
		t.Run(strconv.Itoa(times), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := start(t, forever())
				defer h.stop()
				h.rt.IgnoreTerm("a")
				h.want(web())
				for range times {
					h.want()
					after(5 * time.Second)
					h.wantLeaving("web", true)
					h.want(web())
					after(time.Second)
					h.wantLeaving("web", false)
				}
				h.wantLiving("u1-a-0")
				after(30*time.Second - time.Duration(times)*6*time.Second) // the grace period is over
				h.wantLiving("u1-a-0")                                     // of a new life, without a restart or a pause
				s := h.board.get("web").Status.ContainerStatuses[0]
				if age := time.Since(s.State.Running.StartedAt.Time); s.RestartCount != 0 || age > time.Second {
					t.Errorf("status: %+v", s)
				}
				h.rt.Exit("u1-a-0", 1)
				after(time.Second)
				h.wantLiving("u1-a-1") // nothing has crashed before
			})
		})
	}
}

// TestDeleteAndCreateAJobAgainWhileTerminating: a job whose manifest was removed and added again
// during its termination runs again.
func TestDeleteAndCreateAJobAgainWhileTerminating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"i:1": {Run: time.Second}, "a:1": {Run: time.Minute}})
		h := start(t, rt)
		defer h.stop()
		job := withInit(newPod("job", "u1", v1.RestartPolicyNever, "a"), "i")
		h.want(job)
		after(10 * time.Second)
		h.wantLiving("u1-a-0")
		h.want()
		h.want(job)
		h.wantLiving("u1-i-0")
		after(10 * time.Second)
		h.wantLiving("u1-a-0")
		after(2 * time.Minute)
		h.wantPhase("job", v1.PodSucceeded)
	})
}

// TestEditAndBackWhileTerminating: an edit is reverted while the old revision is being terminated.
func TestEditAndBackWhileTerminating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		h.rt.IgnoreTerm("a")
		h.want(web())
		edit := newPod("web", "u2", v1.RestartPolicyAlways, "a")
		edit.Spec.Containers[0].Args = []string{"x"}
		h.want(edit)
		after(10 * time.Second)
		h.want(web())
		after(20 * time.Second)
		h.wantLiving("u1-a-0")
		if s := h.board.get("web").Status.ContainerStatuses[0]; s.RestartCount != 0 || time.Since(s.State.Running.StartedAt.Time) > time.Second {
			t.Errorf("status: %+v", s)
		}
	})
}

func TestStrayIsStoppedOnlyWhenSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		h.want(web(), newPod("db", "u2", v1.RestartPolicyAlways, "b"))
		h.stop()
		h.wantLiving("u1-a-0 u2-b-0")

		h = start(t, rt)
		defer h.stop()
		d := desired(web())
		d.Complete = false
		h.desired <- d
		after(time.Minute)
		h.wantLiving("u1-a-0 u2-b-0")
		d.Complete = true
		d.Problems = []manifest.Problem{{Origin: manifest.Origin{Source: "file", Path: "/m/db.yaml"}, Blind: true, Err: errors.New("half a file")}}
		h.desired <- d
		after(time.Minute)
		h.wantLiving("u1-a-0 u2-b-0")
		// What is kept without its manifest is kept whole: it restarts, too.
		rt.Exit("u2-b-0", 1)
		after(time.Second)
		h.wantLiving("u1-a-0 u2-b-1")
		h.want(web())
		after(time.Minute)
		h.wantLiving("u1-a-0")
	})
}

func TestManifestIsKeptOnlyWhenItChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		full := atomic.Bool{}
		h := start(t, rt, func(o *reconcile.Options) { o.Data = fullDisk{o.Data, &full} })
		defer h.stop()
		saves := func() (n int) {
			for _, call := range rt.Calls() {
				if call == "SavePod u1" {
					n++
				}
			}
			return n
		}
		h.want(web())
		h.want(web())
		before := saves()
		for range 10 { // as when other manifests change
			h.want(web())
		}
		if n := saves() - before; n != 0 {
			t.Errorf("kept %d times more", n)
		}
		moved := web()
		moved.Annotations[manifest.AnnotationManifest] = "/m/renamed.yaml"
		h.want(moved)
		if p, err := rt.LoadPod("u1"); err != nil || manifest.OriginOf(p).Path != "/m/renamed.yaml" {
			t.Errorf("kept: %v %v", p.Annotations, err)
		}
		full.Store(true)
		moved = web()
		moved.Annotations[manifest.AnnotationManifest] = "/m/again.yaml"
		h.want(moved)
		full.Store(false)
		after(5 * time.Second) // nothing else changes
		if p, err := rt.LoadPod("u1"); err != nil || manifest.OriginOf(p).Path != "/m/again.yaml" {
			t.Errorf("kept after a failure: %v %v", p.Annotations, err)
		}
	})
}

// fullDisk is Data that fails to save manifests while full.
type fullDisk struct {
	runtime.Data
	full *atomic.Bool
}

func (d fullDisk) SavePod(p *v1.Pod, owner string) error {
	if d.full.Load() {
		return errors.New("the disk is full")
	}
	return d.Data.SavePod(p, owner)
}

func TestBadManifestIsShownUntilMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		shows := func(name, want string) {
			t.Helper()
			if got := h.board.get(name).Annotations[manifest.AnnotationError]; got != want {
				t.Errorf("%s shows %q, want %q", name, got, want)
			}
		}
		origin := func(path string) manifest.Origin { return manifest.Origin{Source: "file", Path: path} }
		db := newPod("db", "u2", v1.RestartPolicyAlways, "b")
		h.want(web(), db)
		shows("web", "")
		bad := desired(web(), db)
		bad.Problems = []manifest.Problem{{Origin: origin("/m/web.yaml"), Err: errors.New("/m/web.yaml:12: spec: bad")}}
		h.desired <- bad
		synctest.Wait()
		shows("web", "/m/web.yaml:12: spec: bad")
		shows("db", "")
		rt.Exit("u1-a-0", 1) // and stays shown
		synctest.Wait()
		shows("web", "/m/web.yaml:12: spec: bad")
		h.want(web(), db)
		shows("web", "")

		twice := desired(web(), db)
		twice.Problems = []manifest.Problem{{Origin: origin("/m/copy.yaml"), Key: pod.KeyOf(db),
			Err: &manifest.DuplicateError{Key: pod.KeyOf(db), Used: origin("/m/db.yaml"), Not: origin("/m/copy.yaml")}}}
		h.desired <- twice
		synctest.Wait()
		shows("db", "/m/copy.yaml: pod default/db is also in /m/db.yaml, which is used")
		shows("web", "")
		h.stop()

		// After a restart of podrun the pod is kept by what is on disk, where nothing of this is.
		h = start(t, rt)
		defer h.stop()
		blind := desired(db)
		blind.Problems = []manifest.Problem{{Origin: origin("/m/web.yaml"), Blind: true, Err: errors.New("half a file")},
			{Origin: origin("/m"), Err: errors.New("cannot be read")}}
		h.desired <- blind
		after(time.Second)
		shows("web", "half a file\ncannot be read")
		shows("db", "cannot be read")
		rt.Exit("u1-a-1", 1)
		after(time.Minute)
		shows("web", "half a file\ncannot be read")
		h.want(web(), db)
		shows("web", "")
		if p, err := rt.LoadPod("u1"); err != nil || p.Annotations[manifest.AnnotationError] != "" {
			t.Errorf("kept on disk: %v, %v", p.Annotations, err)
		}
	})
}

// TestPodsOfASourceThatCannotBeReadAreKeptAlive: while it is unknown whether a pod is desired it is
// not only kept but also managed, also after a reboot.
func TestPodsOfASourceThatCannotBeReadAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		h.want(web(), newPod("db", "u2", v1.RestartPolicyAlways, "b"))
		h.stop()
		rt.Reboot("boot-2")
		h = start(t, rt, func(o *reconcile.Options) { o.Boot = "boot-2" })
		defer h.stop()
		d := desired(web())
		d.Complete = false // a source has yet to speak
		h.desired <- d
		after(time.Minute)
		h.wantLiving("u1-a-1")
		d.Problems = []manifest.Problem{{Origin: manifest.Origin{Source: "file", Path: "/m"}, Blind: true, Err: errors.New("not there")}}
		h.desired <- d
		after(time.Minute)
		h.wantLiving("u1-a-1 u2-b-1")
		if got := h.board.get("db").Annotations[manifest.AnnotationError]; got != "not there" {
			t.Errorf("db shows %q", got)
		}
		rt.Exit("u2-b-1", 1)
		after(time.Minute)
		h.wantLiving("u1-a-1 u2-b-2")
		h.want(web())
		after(time.Minute)
		h.wantLiving("u1-a-1")
	})
}

// TestUnknownPodIsSparedWhileUnsure: a pod whose manifest is not known cannot be managed, but must
// not be removed either.
func TestUnknownPodIsSparedWhileUnsure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		h.want(web())
		h.stop()
		if err := rt.RemoveData(t.Context(), pod.KeyOf(web()), "u1"); err != nil {
			t.Fatal(err)
		}
		h = start(t, rt)
		defer h.stop()
		d := desired()
		d.Complete = false
		d.Problems = []manifest.Problem{{Origin: manifest.Origin{Source: "file", Path: "/m"}, Blind: true, Err: errors.New("not there")}}
		h.desired <- d
		after(time.Minute)
		h.wantLiving("u1-a-0")
		h.want()
		after(time.Minute)
		h.wantLiving("")
	})
}

func TestBadManifestDoesNotTakeBackARemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		h.rt.IgnoreTerm("a")
		h.want(web())
		h.want() // by a good edit
		after(10 * time.Second)
		d := desired()
		d.Problems = []manifest.Problem{{Origin: manifest.Origin{Source: "file", Path: "/m/web.yaml"}, Err: errors.New("half a file")}}
		h.desired <- d
		after(20 * time.Second)
		h.wantLiving("")
		after(time.Minute)
		h.wantEmpty()
	})
}

func TestOnceLeavesStrangersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		h.want(web())
		h.stop()
		h = start(t, rt, func(o *reconcile.Options) { o.Owner, o.Rerun, o.Terminates = "once", true, nil })
		defer h.stop()
		h.want(newPod("job", "u2", v1.RestartPolicyNever, "b"))
		after(time.Minute)
		h.wantLiving("u1-a-0 u2-b-0")
	})
}

func TestOnceRunsCompletedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second}})
		job := newPod("job", "u1", v1.RestartPolicyNever, "a")
		starts := func() (n int) {
			for _, call := range rt.Calls() {
				if strings.HasPrefix(call, "StartContainer") {
					n++
				}
			}
			return n
		}
		once := func(o *reconcile.Options) { o.Owner, o.Rerun = "once", true }
		for i, options := range [][]func(*reconcile.Options){{once}, {once}, {}, {}} {
			h := start(t, rt, options...)
			h.want(job)
			after(time.Minute)
			if got := h.board.get("job").Status.Phase; got != v1.PodSucceeded {
				t.Errorf("run %d: phase %s", i, got)
			}
			h.stop()
		}
		if got := starts(); got != 2 {
			t.Errorf("the job ran %d times, want 2: once each `once`, and not again under serve", got)
		}
	})
}

func TestReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second}, "b:1": {}})
		job, db := newPod("job", "u1", v1.RestartPolicyNever, "a"), newPod("db", "u2", v1.RestartPolicyAlways, "b")
		ever := newPod("ever", "u3", v1.RestartPolicyNever, "a")
		ever.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
		h := start(t, rt)
		h.want(job, db, ever)
		after(time.Minute)
		h.stop()
		before := len(rt.Calls())
		rt.Reboot("boot-2")
		h = start(t, rt, func(o *reconcile.Options) { o.Boot = "boot-2" })
		defer h.stop()
		h.want(job, db, ever)
		after(time.Minute)
		h.wantLiving("u2-b-1")
		var started []string
		for _, call := range rt.Calls()[before:] {
			if id, ok := strings.CutPrefix(call, "StartContainer "); ok {
				started = append(started, id)
			}
		}
		slices.Sort(started)
		if want := []string{"u1-a-0", "u2-b-1"}; !slices.Equal(started, want) {
			t.Errorf("started after the reboot: %v, want %v", started, want)
		}
	})
}

func TestRenamedFileKeepsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		h.want(web())
		moved := web()
		moved.UID = "u9"
		moved.Annotations[manifest.AnnotationManifest] = "/m/other.yaml"
		h.want(moved)
		after(time.Minute)
		h.wantLiving("u1-a-0")
		if got := h.board.get("web"); got.UID != "u1" || got.Annotations[manifest.AnnotationManifest] != "/m/other.yaml" {
			t.Errorf("uid %s, manifest %s", got.UID, got.Annotations[manifest.AnnotationManifest])
		}
		h.stop()
		h = start(t, rt)
		defer h.stop()
		h.want(moved)
		after(time.Minute)
		h.wantLiving("u1-a-0")
	})
}

func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.Fail("Wakeups", errors.New("no stream"))
		h := start(t, rt)
		defer h.stop()
		h.want(web())
		rt.Exit("u1-a-0", 1)
		after(1100 * time.Millisecond)
		h.wantLiving("u1-a-1")
	})
}

func TestRuntimeOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		defer h.stop()
		h.want(web())
		down := fmt.Errorf("dial: %w", runtime.ErrUnavailable)
		for _, call := range []string{"List", "Inspect", "StartContainer", "Wakeups"} {
			rt.Fail(call, down)
		}
		rt.BreakStream()
		rt.Exit("u1-a-0", 1)
		after(10 * time.Minute)
		for _, call := range []string{"List", "Inspect", "StartContainer", "Wakeups"} {
			rt.Fail(call, nil)
		}
		after(12 * time.Second)
		h.wantLiving("u1-a-1")
	})
}

func TestVanishedContainerAndLostSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		defer h.stop()
		h.want(web())
		rt.Vanish("u1-a-0")
		after(time.Second)
		h.wantLiving("u1-a-1")
		if s := h.board.get("web").Status.ContainerStatuses[0]; s.RestartCount != 1 {
			t.Errorf("after it vanished: %+v", s)
		}
		rt.LoseSandbox("u1-sandbox-0")
		after(time.Minute)
		all, _ := rt.List(t.Context())
		if s := all[0].Sandboxes; len(s) != 1 || s[0].Attempt != 1 || !s[0].Ready {
			t.Errorf("sandboxes: %+v", s)
		}
		if h.living() == "" {
			t.Error("nothing runs in the new sandbox")
		}
	})
}

// TestACompletedJobIsRememberedWithoutItsContainer removes a job's container outside of podrun,
// while podrun runs and while it does not.
func TestACompletedJobIsRememberedWithoutItsContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"j:1": {Run: time.Second}})
		job := newPod("job", "u3", v1.RestartPolicyOnFailure, "j")
		completed := func(h *house) {
			t.Helper()
			s := h.board.get("job").Status
			if s.Phase != v1.PodSucceeded || s.ContainerStatuses[0].State.Terminated == nil || countStarts(rt) != 1 {
				t.Errorf("started %d times, status %+v", countStarts(rt), s)
			}
		}
		h := start(t, rt)
		h.want(job)
		after(time.Minute)
		completed(h)
		rt.Vanish("u3-j-0")
		after(time.Hour)
		completed(h)
		h.stop()
		h = start(t, rt)
		defer func() { h.stop() }()
		h.want(job)
		after(time.Hour)
		completed(h)
		h.want()
		after(time.Minute)
		h.wantEmpty()
		h.want(job)
		after(time.Minute)
		if countStarts(rt) != 2 {
			t.Errorf("a job that was taken away and given again was started %d times", countStarts(rt))
		}
	})
}

func TestStopAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever(), func(o *reconcile.Options) { o.StopAll = func(time.Duration) bool { return true } })
		h.rt.IgnoreTerm("a")
		h.want(web(), newPod("db", "u2", v1.RestartPolicyAlways, "b"))
		h.stop()
		h.wantEmpty()
	})
}

// endedVolumes records which pods have ended, and of which nothing is mounted any more.
type endedVolumes struct {
	noVolumes
	ended, unmounted *[]pod.UID
}

func (v endedVolumes) Ended(_ context.Context, uid pod.UID) error {
	*v.ended = append(*v.ended, uid)
	return nil
}

func (v endedVolumes) Teardown(_ context.Context, uid pod.UID) error {
	*v.unmounted = append(*v.unmounted, uid)
	return nil
}

func (v endedVolumes) Published(uid pod.UID) bool { return !slices.Contains(*v.ended, uid) }

// emptiedData records of which pods the emptyDir volumes are removed.
type emptiedData struct {
	runtime.Data
	uids *[]pod.UID
}

func (d emptiedData) RemoveEmptyDirs(_ context.Context, uid pod.UID) error {
	*d.uids = append(*d.uids, uid)
	return nil
}

// TestVolumesOfPodsThatEnded: what a completed pod has mounted is released when its sandbox goes, not with its data, and
// its emptyDir volumes go, unless a report is to be read from them.
func TestVolumesOfPodsThatEnded(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := forever()
			rt.AddImage("a:1", fake.Script{Run: time.Second})
			var ended, unmounted, emptied []pod.UID
			h := start(t, rt, func(o *reconcile.Options) {
				o.Volumes, o.KeepVolumes = endedVolumes{ended: &ended, unmounted: &unmounted}, keep
				o.Data = emptiedData{o.Data, &emptied}
			})
			defer h.stop()
			h.want(newPod("job", "u1", v1.RestartPolicyNever, "a"), newPod("web", "u2", v1.RestartPolicyAlways, "b"))
			after(time.Minute)
			rt.Exit("u2-b-0", 1)
			after(time.Minute)
			gone := []pod.UID{"u1"}
			if keep {
				gone = nil
			}
			if !slices.Equal(ended, []pod.UID{"u1"}) || !slices.Equal(unmounted, gone) || !slices.Equal(emptied, gone) {
				t.Errorf("keep %v: ended %v, unmounted %v, without emptyDir volumes %v", keep, ended, unmounted, emptied)
			}
		})
	}
}

// TestStopAllWaitsForNobody: a pod that does not end keeps the critical ones for a minute, not for its day.
func TestStopAllWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt, func(o *reconcile.Options) { o.StopAll = func(time.Duration) bool { return true } })
		rt.IgnoreTerm("a")
		slow, driver := web(), newPod("driver", "u2", v1.RestartPolicyAlways, "b")
		slow.Spec.TerminationGracePeriodSeconds = new(int64(24 * 60 * 60))
		driver.Spec.PriorityClassName = "system-node-critical"
		h.want(driver, slow)
		h.stop()
		h.wantEmpty()
		all := rt.Calls()
		if driver, slow := slices.Index(all, "SignalContainer u2-b-0 SIGTERM"), slices.Index(all, "SignalContainer u1-a-0 SIGKILL"); driver < 0 || slow < driver {
			t.Errorf("the driver is ended at %d, the slow pod at %d", driver, slow)
		}
	})
}

// TestStopAllEndsCriticalPodsLast: others may need a critical pod until they are gone.
func TestStopAllEndsCriticalPodsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt, func(o *reconcile.Options) { o.StopAll = func(time.Duration) bool { return true } })
		rt.IgnoreTerm("a")
		driver := newPod("driver", "u2", v1.RestartPolicyAlways, "b")
		driver.Spec.PriorityClassName = "system-node-critical"
		h.want(driver, web())
		h.stop()
		h.wantEmpty()
		gone, signalled := -1, -1
		for i, call := range rt.Calls() {
			if strings.HasPrefix(call, "RemoveSandbox u1-") {
				gone = i
			}
			if strings.HasPrefix(call, "SignalContainer u2-") && signalled < 0 {
				signalled = i
			}
		}
		if gone < 0 || signalled < gone {
			t.Errorf("the driver is ended at %d, its user's sandbox removed at %d of %q", signalled, gone, rt.Calls())
		}
	})
}

func TestImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New("boot-1")
		rt.Fail("Pull", errors.New("registry says no"))
		h := start(t, rt)
		defer h.stop()
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b")
		p.Spec.Containers[1].ImagePullPolicy = v1.PullNever
		h.want(p)
		reason := func(i int) string {
			w := h.board.get("web").Status.ContainerStatuses[i].State.Waiting
			if w == nil {
				return ""
			}
			return w.Reason
		}
		if got := reason(0) + " " + reason(1); got != "ErrImagePull ErrImageNeverPull" {
			t.Errorf("reasons %q", got)
		}
		after(11 * time.Second)
		if got := reason(0); got != "ImagePullBackOff" {
			t.Errorf("reason %q after the second failure", got)
		}
		rt.AddImage("b:1", fake.Script{})
		rt.Fail("Pull", nil)
		after(30 * time.Second)
		h.wantLiving("u1-a-0 u1-b-0")
	})
}

func TestStartErrorIsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, runtimeWith(map[string]fake.Script{"a:1": {StartError: errors.New("exec: no such file")}}))
		defer h.stop()
		h.want(newPod("job", "u1", v1.RestartPolicyNever, "a"))
		after(time.Second)
		s := h.board.get("job").Status
		if s.Phase != v1.PodFailed || s.ContainerStatuses[0].State.Terminated.Reason != "StartError" || s.ContainerStatuses[0].State.Terminated.ExitCode != 128 {
			t.Errorf("status %+v", s)
		}
	})
}

// TestUnansweredStartIsARun: a process that may have run counts as run. So a job that is never
// restarted has failed, and a container with another restart policy waits for its back-off.
func TestUnansweredStartIsARun(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy]v1.PodPhase{v1.RestartPolicyNever: v1.PodFailed, v1.RestartPolicyAlways: v1.PodRunning} {
		synctest.Test(t, func(t *testing.T) {
			h := start(t, runtimeWith(map[string]fake.Script{"a:1": {Unanswered: true}}))
			defer h.stop()
			h.want(newPod("job", "u1", policy, "a"))
			after(5 * time.Second)
			s := h.board.get("job").Status
			c := s.ContainerStatuses[0]
			ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
			if s.Phase != want || ended == nil || ended.Reason != pod.ReasonLost || ended.ExitCode != 255 {
				t.Errorf("%s: status %+v", policy, s)
			}
			ran := h.rt.Ran()
			if len(slices.Compact(slices.Sorted(slices.Values(ran)))) != len(ran) || policy == v1.RestartPolicyNever && len(ran) != 1 || policy == v1.RestartPolicyAlways && len(ran) != int(c.RestartCount)+1 {
				t.Errorf("%s: ran %q, restart count %d", policy, ran, c.RestartCount)
			}
		})
	}
}

func TestStrayOfWhichOnlyAStatusIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := pod.Key{Namespace: "default", Name: "gone"}
		h := start(t, forever(), func(o *reconcile.Options) { o.Strays = []pod.Key{key} })
		defer h.stop()
		h.board.pods[key] = newPod("gone", "u7", v1.RestartPolicyAlways, "a")
		h.want(web())
		after(time.Second)
		if h.board.get("gone") != nil {
			t.Error("the status is still there")
		}
		h.wantLiving("u1-a-0")
	})
}

func TestWaitsForItsConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		p := web()
		name := v1.LocalObjectReference{Name: "m"}
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: name, Key: "k"}}}}
		h.want(p)
		after(time.Minute) // long enough for the longest pause between attempts
		h.wantLiving("")
		if w := h.board.get("web").Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || w.Message != `configmap "m" not found` {
			t.Errorf("waiting: %+v", w)
		}
		d := desired(p)
		d.Objects.ConfigMaps = map[pod.Key]*v1.ConfigMap{{Namespace: "default", Name: "m"}: {Data: map[string]string{"k": "v"}}}
		h.desired <- d
		after(10 * time.Millisecond) // and not only with the next attempt
		h.wantLiving("u1-a-0")
		d.Objects = pod.Objects{}
		h.desired <- d
		after(time.Minute)
		h.wantLiving("u1-a-0")
	})
}
