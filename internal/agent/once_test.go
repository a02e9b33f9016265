package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/deadline"
	"podrun.io/podrun/internal/agent/node"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/sys"
)

// onceTest is a whole once on the fake runtime, in virtual time. It reads its manifests from
// standard input.
type onceTest struct {
	t       *testing.T
	runtime *fake.Runtime
	o       Options
	once    OnceOptions
	hurry   chan struct{}
	ctx     context.Context
	// interrupt is the first signal.
	interrupt context.CancelFunc
	began     time.Time
}

// onFake runs f in virtual time.
func onFake(t *testing.T, f func(r *onceTest)) {
	t.Helper()
	dir := t.TempDir()
	boot, err := sys.BootID()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &onceTest{t: t, runtime: fake.New(boot), hurry: make(chan struct{}), began: time.Now()}
		for image, script := range map[string]fake.Script{
			"job:1": {Run: time.Second}, "bad:1": {Run: time.Second, Exit: 3}, "slow:1": {}, "web:1": {},
		} {
			r.runtime.AddImage(image, script)
		}
		r.ctx, r.interrupt = context.WithCancel(t.Context())
		defer r.interrupt()
		r.o = Options{
			Dirs:    onceDirs(dir),
			Sources: sources.Options{Manifests: []string{"-"}}, NodeName: "n", RelistPeriod: time.Second, Events: "auto",
			Hurry: r.hurry, Log: slog.New(slog.DiscardHandler), backend: r.runtime,
			machine: &machine{Info: node.Info{Boot: boot, Address: network.FixedHostAddress("")}, parallel: 4},
		}
		f(r)
		time.Sleep(2 * time.Hour) // what once has left alone comes to its end
	})
}

func onceDirs(dir string) layout.Dirs {
	return layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")}
}

// onceManifest returns a pod with one container; more is added to its spec.
func onceManifest(name, policy, image string, more ...string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, uid: %s}\n"+
		"spec:\n  restartPolicy: %s\n  containers: [{name: c, image: \"%s\"}]\n%s",
		name, name, policy, image, strings.Join(more, ""))
}

// run calls Once with these manifests.
func (r *onceTest) run(manifests ...string) (result.Result, error) {
	o := r.o
	o.Stdin = strings.NewReader(strings.Join(manifests, ""))
	o.locks = owner.NewLocks(o.Dirs, owner.Once)
	defer o.locks.Close() // what once did not wait for ends with its process
	return Once(r.ctx, o, r.once)
}

// mustRun is run, but fails the test on an error. It also returns how long run took.
func (r *onceTest) mustRun(manifests ...string) (result.Result, time.Duration) {
	r.t.Helper()
	began := time.Now()
	result, err := r.run(manifests...)
	if err != nil {
		r.t.Fatal(err)
	}
	return result, time.Since(began)
}

// after calls f after d of virtual time.
func (r *onceTest) after(d time.Duration, f func()) { time.AfterFunc(d, f) }

// wantTook checks that something took between least and most.
func (r *onceTest) wantTook(took, least, most time.Duration) {
	r.t.Helper()
	if took < least || took > most {
		r.t.Errorf("took %s, want from %s to %s", took, least, most)
	}
}

// phases returns the phases of the pods, with their names.
func phases(r result.Result) string {
	var all []string
	for _, p := range r.Pods {
		all = append(all, fmt.Sprintf("%s=%s", p.Name, p.Status.Phase))
	}
	return strings.Join(all, " ")
}

// leftOver returns the pods that are left, as once reports them.
func leftOver(r result.Result) string {
	var all []string
	for _, l := range r.Left {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s: %v", l.Key.Name, l.Why)))
	}
	return strings.Join(all, "\n")
}

// there returns the names of the pods that the runtime has something of.
func (r *onceTest) there() string {
	r.t.Helper()
	all, err := r.runtime.List(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Key.Name)
	}
	return strings.Join(names, " ")
}

func TestOnceResults(t *testing.T) {
	for _, c := range []struct {
		name      string
		manifests []string
		once      OnceOptions
		want      string
		failed    bool
		timedOut  bool
		there     string
		least     time.Duration
		most      time.Duration
	}{
		{name: "a job", manifests: []string{onceManifest("a", "Never", "job:1")},
			want: "a-n=Succeeded", there: "a-n",
			least: time.Second, most: 2 * time.Second},
		{name: "a job that fails", manifests: []string{onceManifest("a", "Never", "bad:1")},
			want:   "a-n=Failed",
			failed: true, there: "a-n",
			least: time.Second, most: 2 * time.Second},
		{name: "removed", manifests: []string{onceManifest("a", "Never", "job:1")},
			once:  OnceOptions{Remove: true},
			want:  "a-n=Succeeded",
			least: time.Second, most: 2 * time.Second},
		{name: "a service", manifests: []string{onceManifest("a", "Always", "web:1")},
			want: "a-n=Running", there: "a-n", most: time.Second},
		{name: "a service that is removed", manifests: []string{onceManifest("a", "Always", "web:1")},
			once: OnceOptions{Remove: true},
			want: "a-n=Running", most: time.Second},
		{name: "late", manifests: []string{onceManifest("a", "Never", "slow:1"), onceManifest("b", "Always", "web:1")},
			once: OnceOptions{Timeout: time.Minute}, want: "a-n=Running b-n=Running", timedOut: true, there: "b-n",
			least: time.Minute, most: time.Minute + time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onFake(t, func(r *onceTest) {
				r.once = c.once
				finished := 0
				r.once.Finished = func(result.Result) { finished++ }
				result, took := r.mustRun(c.manifests...)
				r.wantTook(took, c.least, c.most)
				if got := phases(result); got != c.want || result.Interrupted ||
					result.Failed() != c.failed || result.TimedOut != c.timedOut {
					t.Errorf("got %s, %+v", got, result)
				}
				if r.there() != c.there || finished != 1 || leftOver(result) != "" {
					t.Errorf("%q is there, finished %d times, left: %s", r.there(), finished, leftOver(result))
				}
			})
		})
	}
}

// TestOnceKeepsObjects: the volumes of services that once leaves running still show their
// ConfigMaps although once terminates other pods.
func TestOnceKeepsObjects(t *testing.T) {
	onFake(t, func(r *onceTest) {
		r.once.Timeout = 5 * time.Second
		result, _ := r.mustRun(
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {key: value}\n",
			onceManifest("web", "Always", "web:1\", volumeMounts: [{name: v, mountPath: /v}], workingDir: \"/",
				"  volumes: [{name: v, configMap: {name: m, optional: true}}]\n"),
			onceManifest("job", "Never", "slow:1"))
		if !result.TimedOut || r.there() != "web-n" {
			t.Fatalf("%+v, there is %q", result, r.there())
		}
		file := filepath.Join(r.o.Dirs.Revision("web").Volume(layout.KindConfigMap, "v"), "key")
		if got, err := os.ReadFile(file); string(got) != "value" {
			t.Errorf("the volume shows %q, %v", got, err)
		}
	})
}

// TestOnceDoesNotWaitForCleaningUp: once the result is known, a cleanup that fails or hangs delays
// it only up to the limit, and the error names what is left.
func TestOnceDoesNotWaitForCleaningUp(t *testing.T) {
	plugin := errors.New("the plugin says no")
	for _, c := range []struct {
		name     string
		manifest string
		once     OnceOptions
		breaks   func(r *onceTest)
		left     string
		least    time.Duration
		most     time.Duration
	}{
		{name: "a completed pod's network", manifest: onceManifest("a", "Never", "job:1"),
			breaks: func(r *onceTest) { r.runtime.Fail("RemoveSandbox", plugin) },
			left:   "a-n: ", least: 11 * time.Second, most: 12 * time.Second},
		{name: "a completed pod's network, to be removed", manifest: onceManifest("a", "Never", "job:1"),
			once:   OnceOptions{Remove: true},
			breaks: func(r *onceTest) { r.runtime.Fail("RemoveSandbox", plugin) },
			left:   "a-n: ", least: 11 * time.Second, most: 13 * time.Second},
		{name: "removal", manifest: onceManifest("a", "Never", "job:1"), once: OnceOptions{Remove: true},
			breaks: func(r *onceTest) { r.runtime.Fail("RemovePod", plugin) },
			left:   "a-n: ", least: 11 * time.Second, most: 12 * time.Second},
		{name: "an own bound", manifest: onceManifest("a", "Never", "job:1"),
			once:   OnceOptions{Remove: true, CleanupTimeout: 3 * time.Second},
			breaks: func(r *onceTest) { r.runtime.Fail("RemovePod", plugin) },
			left:   "a-n: ", least: 4 * time.Second, most: 5 * time.Second},
		{name: "a service has its grace period",
			manifest: onceManifest("a", "Always", "web:1", "  terminationGracePeriodSeconds: 20\n"),
			once:     OnceOptions{Remove: true},
			breaks:   func(r *onceTest) { r.runtime.Fail("RemoveSandbox", plugin); r.runtime.IgnoreTerm("c") },
			left:     "a-n: ", least: 29 * time.Second, most: 31 * time.Second},
		{name: "what ended in time", manifest: onceManifest("a", "Always", "web:1", "  terminationGracePeriodSeconds: 20\n"),
			once:   OnceOptions{Remove: true},
			breaks: func(r *onceTest) { r.runtime.IgnoreTerm("c") }, least: 20 * time.Second, most: 23 * time.Second},
		{name: "timed out", manifest: onceManifest("a", "Never", "slow:1", "  terminationGracePeriodSeconds: 5\n"),
			once:   OnceOptions{Timeout: time.Minute},
			breaks: func(r *onceTest) { r.runtime.Fail("SignalContainer", plugin) },
			left:   "a-n: ", least: 75 * time.Second, most: 76 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onFake(t, func(r *onceTest) {
				r.once = c.once
				c.breaks(r)
				result, took := r.mustRun(c.manifest)
				r.wantTook(took, c.least, c.most)
				got := leftOver(result)
				if (c.left == "") != (got == "") || !strings.HasPrefix(got, c.left) ||
					c.left != "" && !strings.Contains(got, plugin.Error()) {
					t.Errorf("left is %q", got)
				}
				if result.Interrupted || result.TimedOut != (c.once.Timeout > 0) || result.Failed() {
					t.Errorf("%s: %+v", phases(result), result)
				}
			})
		})
	}
}

// hungRemovals is a runtime that hangs in RemoveSandbox for some time, even after its context has
// ended.
type hungRemovals struct {
	*fake.Runtime
	takes time.Duration
}

// RemoveSandbox implements runtime.Sandboxes.
func (h hungRemovals) RemoveSandbox(ctx context.Context, id string, ended func(context.Context) error) error {
	time.Sleep(h.takes)
	return h.Runtime.RemoveSandbox(ctx, id, ended)
}

// TestOnceDoesNotWaitForWhatHangs: a call that ignores its context does not delay once.
func TestOnceDoesNotWaitForWhatHangs(t *testing.T) {
	for _, remove := range []bool{false, true} {
		onFake(t, func(r *onceTest) {
			r.once.Remove, r.o.backend = remove, hungRemovals{r.runtime, time.Hour}
			result, took := r.mustRun(onceManifest("a", "Never", "job:1"))
			r.wantTook(took, 11*time.Second, 13*time.Second)
			if got := leftOver(result); got != "a-n: <nil>" || phases(result) != "a-n=Succeeded" {
				t.Errorf("remove %t: %s, left is %q", remove, phases(result), got)
			}
		})
	}
}

// silent is a standard input without any data.
type silent struct{ open chan struct{} }

func (s silent) Read([]byte) (int, error) {
	<-s.open
	return 0, io.EOF
}

// hungCreation is a runtime that hangs in CreateSandbox until its context ends.
type hungCreation struct{ *fake.Runtime }

// CreateSandbox implements runtime.Sandboxes.
func (hungCreation) CreateSandbox(ctx context.Context, _ *v1.Pod, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestOnceIsInterrupted(t *testing.T) {
	t.Run("reading", func(t *testing.T) {
		onFake(t, func(r *onceTest) {
			in := silent{make(chan struct{})}
			defer close(in.open)
			r.o.Stdin = in
			r.after(time.Minute, r.interrupt)
			_, err := Once(r.ctx, r.o, r.once)
			r.wantTook(time.Since(r.began), time.Minute, time.Minute+time.Second)
			if !errors.Is(err, context.Canceled) || len(r.runtime.Calls()) != 0 {
				t.Errorf("got %v, called %v", err, r.runtime.Calls())
			}
		})
	})
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("connecting, late %t", late), func(t *testing.T) { interruptConnecting(t, late) })
	}
	for _, c := range []struct {
		name     string
		manifest string
		remove   bool
		prepare  func(r *onceTest)
		// first and second are when the signals come; 0: never.
		first, second time.Duration
		least, most   time.Duration
		left          string
		timeout       time.Duration
		// stops: the interrupt finds pods that are to end.
		stops bool
	}{
		{name: "pulling", manifest: onceManifest("a", "Never", "absent:1"),
			prepare: func(r *onceTest) { r.runtime.SlowPull("absent:1", &pod.Progress{}) },
			first:   time.Minute, least: time.Minute, most: time.Minute + time.Second, stops: true},
		{name: "running", manifest: onceManifest("a", "Never", "slow:1"),
			first: time.Minute, least: time.Minute, most: time.Minute + time.Second, stops: true},
		{name: "deaf", manifest: onceManifest("a", "Never", "slow:1"),
			prepare: func(r *onceTest) { r.runtime.IgnoreTerm("c") },
			first:   time.Minute, least: 90 * time.Second, most: 93 * time.Second, stops: true},
		{name: "deaf, and twice", manifest: onceManifest("a", "Never", "slow:1"),
			prepare: func(r *onceTest) { r.runtime.IgnoreTerm("c") },
			first:   time.Minute, second: 65 * time.Second, least: 65 * time.Second, most: 66 * time.Second, stops: true},
		{name: "hung, and twice", manifest: onceManifest("a", "Never", "slow:1"),
			prepare: func(r *onceTest) { r.o.backend = hungCreation{r.runtime} },
			first:   time.Minute, second: 65 * time.Second, least: 65 * time.Second, most: 66 * time.Second,
			left: "a-n: ", stops: true},
		{name: "hung", manifest: onceManifest("a", "Never", "slow:1"),
			prepare: func(r *onceTest) { r.o.backend = hungRemovals{r.runtime, time.Hour} },
			first:   time.Minute, least: 70 * time.Second, most: 71 * time.Second, left: "a-n: ", stops: true},
		{name: "deaf and hung", manifest: onceManifest("a", "Never", "slow:1"),
			prepare: func(r *onceTest) { r.runtime.IgnoreTerm("c"); r.o.backend = hungRemovals{r.runtime, time.Hour} },
			first:   time.Minute, least: 99 * time.Second, most: 101 * time.Second, left: "a-n: ", stops: true},
		{name: "cleaning up", manifest: onceManifest("a", "Never", "job:1"), remove: true,
			prepare: func(r *onceTest) { r.runtime.Fail("RemovePod", errors.New("no")) },
			first:   5 * time.Second, least: 5 * time.Second, most: 6 * time.Second, left: "a-n: "},
		{name: "cleaning up what has its grace period", manifest: onceManifest("a", "Always", "web:1"), remove: true,
			prepare: func(r *onceTest) { r.runtime.IgnoreTerm("c") },
			first:   5 * time.Second, least: 30 * time.Second, most: 31 * time.Second, stops: true},
		{name: "settling", manifest: onceManifest("a", "Never", "job:1"),
			prepare: func(r *onceTest) { r.runtime.Fail("RemoveSandbox", errors.New("no")) },
			first:   5 * time.Second, least: 5 * time.Second, most: 6 * time.Second, left: "a-n: "},
		{name: "settling, and hung", manifest: onceManifest("a", "Never", "job:1"),
			prepare: func(r *onceTest) { r.o.backend = hungRemovals{r.runtime, time.Hour} },
			first:   5 * time.Second, least: 5 * time.Second, most: 6 * time.Second, left: "a-n: "},
		{name: "settling what is to be removed", manifest: onceManifest("a", "Never", "job:1"), remove: true,
			prepare: func(r *onceTest) { r.o.backend = hungRemovals{r.runtime, time.Hour} },
			first:   5 * time.Second, least: 5 * time.Second, most: 6 * time.Second, left: "a-n: "},
		{name: "cleaning up what has ended", manifest: onceManifest("a", "Always", "web:1"), remove: true,
			prepare: func(r *onceTest) { r.o.backend = hungRemovals{r.runtime, time.Hour} },
			first:   5 * time.Second, least: 5 * time.Second, most: 6 * time.Second, left: "a-n: "},
		{name: "cleaning up what ends after that", manifest: onceManifest("a", "Always", "web:1"), remove: true,
			prepare: func(r *onceTest) { r.runtime.IgnoreTerm("c"); r.o.backend = hungRemovals{r.runtime, time.Hour} },
			first:   5 * time.Second, least: 30 * time.Second, most: 31 * time.Second, left: "a-n: ", stops: true},
		{name: "cleaning up after the time-out", manifest: onceManifest("a", "Never", "slow:1"), timeout: time.Minute,
			prepare: func(r *onceTest) { r.o.backend = hungRemovals{r.runtime, time.Hour} },
			first:   65 * time.Second, least: 65 * time.Second, most: 66 * time.Second, left: "a-n: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			onFake(t, func(r *onceTest) {
				r.once.Remove, r.once.Timeout = c.remove, c.timeout
				var told []bool
				r.once.Interrupted = func(stops bool) { told = append(told, stops) }
				if c.prepare != nil {
					c.prepare(r)
				}
				r.after(c.first, r.interrupt)
				if c.second > 0 {
					r.after(c.second, func() { close(r.hurry) })
				}
				result, took := r.mustRun(c.manifest)
				r.wantTook(took, c.least, c.most)
				got := leftOver(result)
				if (c.left == "") != (got == "") || !strings.HasPrefix(got, c.left) || !result.Interrupted {
					t.Errorf("left is %q, %+v", got, result)
				}
				if !slices.Equal(told, []bool{c.stops}) {
					t.Errorf("it was told that pods are stopped: %v", told)
				}
				if c.left == "" && r.there() != "" {
					t.Errorf("there is %q", r.there())
				}
			})
		})
	}
}

// interruptConnecting interrupts once in real time while it connects to a containerd that does not
// respond. With late it reaches its timeout instead.
func interruptConnecting(t *testing.T, late bool) {
	dir, err := os.MkdirTemp("", "po")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "c"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{
		Dirs:    onceDirs(dir),
		Sources: sources.Options{Manifests: []string{"-"}}, Stdin: strings.NewReader(onceManifest("a", "Never", "job:1")),
		Connect: connection.Options{Address: l.Addr().String()}, NodeName: "n", Log: slog.New(slog.DiscardHandler),
	}
	var once OnceOptions
	if late {
		once.Timeout = 300 * time.Millisecond
	} else {
		time.AfterFunc(300*time.Millisecond, cancel)
	}
	defer cancel()
	began := time.Now()
	_, err = Once(ctx, o, once)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if timeout := (*deadline.TimeoutError)(nil); errors.As(err, &timeout) != late || !late && ctx.Err() == nil {
		t.Errorf("got %v", err)
	}
}

// TestOnceReadsInTime: the timeout includes the reading of manifests.
func TestOnceReadsInTime(t *testing.T) {
	onFake(t, func(r *onceTest) {
		in := silent{make(chan struct{})}
		defer close(in.open)
		r.o.Stdin, r.once.Timeout = in, time.Minute
		_, err := Once(r.ctx, r.o, r.once)
		r.wantTook(time.Since(r.began), time.Minute, time.Minute+time.Second)
		if timeout := (*deadline.TimeoutError)(nil); !errors.As(err, &timeout) {
			t.Errorf("got %v", err)
		}
	})
}

// TestOnceThatCannotBegin: a once that cannot start releases the pods that it had acquired.
func TestOnceThatCannotBegin(t *testing.T) {
	onFake(t, func(r *onceTest) {
		if err := os.WriteFile(r.o.Dirs.Log, nil, 0o600); err != nil { // in place of the directory
			t.Fatal(err)
		}
		r.o.Stdin = strings.NewReader(onceManifest("job", "Never", "job:1"))
		if _, err := Once(r.ctx, r.o, r.once); err == nil {
			t.Error("it began")
		}
		if locks, err := os.ReadDir(r.o.Dirs.PodLocks()); err != nil || len(locks) > 0 {
			t.Errorf("left: %v, %v", locks, err)
		}
	})
}

// TestOnceWaitsForTheNewRun: a service that runs under the same UID, but from another manifest,
// does not count as a result of this run.
func TestOnceWaitsForTheNewRun(t *testing.T) {
	onFake(t, func(r *onceTest) {
		r.mustRun(onceManifest("a", "Always", "web:1"))
		r.runtime.IgnoreTerm("c")
		result, took := r.mustRun(onceManifest("a", "Always", "slow:1"))
		r.wantTook(took, 30*time.Second, 35*time.Second)
		if got := result.Pods[0].Status.ContainerStatuses[0].Image; got != "slow:1" {
			t.Errorf("the result is of %s", got)
		}
	})
}
