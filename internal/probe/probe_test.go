package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// execFunc is a runtime.Execer. It starts the command "slowly" in a minute and a half, and "never" not at all.
type execFunc func(ctx context.Context, cmd []string, out io.Writer) (int, error)

func (f execFunc) Exec(ctx context.Context, _ string, cmd []string, s runtime.ExecIO) (int, error) {
	switch cmd[0] {
	case "never":
		<-ctx.Done()
		return 0, context.Cause(ctx)
	case "slowly":
		time.Sleep(90 * time.Second)
		cmd = cmd[1:]
	}
	if s.Started != nil {
		s.Started()
	}
	return f(ctx, cmd, s.Stdout)
}

// noted records events.
type noted struct {
	mu  sync.Mutex
	all []pod.Event
}

func (n *noted) Record(e pod.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
}

var quiet = slog.New(slog.DiscardHandler)

func newProber(f execFunc) *Prober { return New(Options{Exec: f, Log: quiet, Events: &noted{}}) }

// at returns a target that listens at the URL.
func at(t testing.TB, where string) (Target, intstr.IntOrString) {
	t.Helper()
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	c := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
	return Target{ID: "i", Container: c, Address: u.Hostname()}, intstr.FromInt(port)
}

func httpProbe(port intstr.IntOrString, path string, headers ...v1.HTTPHeader) *v1.Probe {
	p := &v1.Probe{TimeoutSeconds: 1}
	p.HTTPGet = &v1.HTTPGetAction{Port: port, Path: path, Scheme: v1.URISchemeHTTP, HTTPHeaders: headers}
	return p
}

func TestHTTP(t *testing.T) {
	var seen *http.Request
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { seen = r })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("there"), http.StatusFound)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/torn/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(code)
		fmt.Fprint(w, "x")
	})
	mux.HandleFunc("/stalled", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	target, port := at(t, server.URL)
	p := newProber(nil)
	for _, tt := range []struct {
		name, path string
		port       intstr.IntOrString
		want       outcome
		heard      string
	}{
		{"200", "/", port, succeeded, ""},
		{"399", "/status/399", port, warned, ""},
		{"400", "/status/400", port, failed, "HTTP probe failed with statuscode: 400"},
		{"503", "/status/503", port, failed, "statuscode: 503"},
		{"a named port", "/", intstr.FromString("web"), succeeded, ""},
		{"a name that no port has", "/", intstr.FromString("nobody"), unknown, `no port "nobody"`},
		{"a redirect is followed", "/to?there=/status/500", port, failed, "500"},
		{"but not to another host", "/to?there=http://localhost.invalid/", port, warned, "Probe terminated redirects"},
		{"nor for ever", "/round", port, failed, "10 redirects"},
		{"a body that is cut off", "/torn/200", port, unknown, "unexpected EOF"},
		{"that of a failure", "/torn/500", port, unknown, "unexpected EOF"},
		{"a body that stalls", "/stalled", port, unknown, "deadline exceeded"},
		{"no answer in time", "/slow", port, failed, "deadline exceeded"},
		{"nobody there", "/", intstr.FromInt32(1), failed, "refused"},
	} {
		a := p.ask(t.Context(), &target, httpProbe(tt.port, tt.path))
		if a.outcome != tt.want || !strings.Contains(a.message, tt.heard) {
			t.Errorf("%s: %s %q", tt.name, a.outcome, a.message)
		}
	}
	elsewhere := httpProbe(port, "/")
	elsewhere.HTTPGet.Host, target.Address = target.Address, "192.0.2.1"
	if a := p.ask(t.Context(), &target, elsewhere); a.outcome != succeeded {
		t.Errorf("a host of its own: %+v", a)
	}
	target, port = at(t, secure.URL)
	https := httpProbe(port, "/", v1.HTTPHeader{Name: "Host", Value: "web.example"}, v1.HTTPHeader{Name: "X-A", Value: "1"},
		v1.HTTPHeader{Name: "X-A", Value: "2"}, v1.HTTPHeader{Name: "Accept", Value: ""})
	https.HTTPGet.Scheme = v1.URISchemeHTTPS
	if a := p.ask(t.Context(), &target, https); a.outcome != succeeded {
		t.Fatalf("https with a certificate of its own: %+v", a)
	}
	if h := seen.Header; seen.Host != "web.example" || len(h["X-A"]) != 2 || h.Get("User-Agent") != probeAgent || h["Accept"] != nil || !seen.Close {
		t.Errorf("asked for %s with %v", seen.Host, h)
	}
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target, port := at(t, "tcp://"+listener.Addr().String())
	spec := &v1.Probe{TimeoutSeconds: 1}
	spec.TCPSocket = &v1.TCPSocketAction{Port: port}
	p := newProber(nil)
	if a := p.ask(t.Context(), &target, spec); a.outcome != succeeded {
		t.Errorf("open: %+v", a)
	}
	listener.Close()
	if a := p.ask(t.Context(), &target, spec); a.outcome != failed {
		t.Errorf("closed: %+v", a)
	}
	target.Address = ""
	if a := p.ask(t.Context(), &target, spec); a.outcome != unknown {
		t.Errorf("without an address: %+v", a)
	}
}

func TestGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	state, server := health.NewServer(), grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	go server.Serve(listener)
	defer server.Stop()
	target, port := at(t, "grpc://"+listener.Addr().String())
	state.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	p := newProber(nil)
	for service, want := range map[string]outcome{"": succeeded, "down": failed, "nobody": failed} {
		spec := &v1.Probe{TimeoutSeconds: 1}
		spec.GRPC = &v1.GRPCAction{Port: port.IntVal, Service: new(service)}
		if a := p.ask(t.Context(), &target, spec); a.outcome != want {
			t.Errorf("service %q: %+v", service, a)
		}
	}
	server.Stop()
	spec := &v1.Probe{TimeoutSeconds: 1}
	spec.GRPC = &v1.GRPCAction{Port: port.IntVal}
	if a := p.ask(t.Context(), &target, spec); a.outcome != failed {
		t.Errorf("nobody there: %+v", a)
	}
}

func TestExec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber(func(ctx context.Context, cmd []string, out io.Writer) (int, error) {
			switch cmd[0] {
			case "sleep":
				<-ctx.Done()
				return 0, ctx.Err()
			case "missing":
				return 0, errors.New("no such command")
			case "away":
				<-ctx.Done()
				return 0, errors.Join(ctx.Err(), runtime.ErrUnavailable)
			}
			fmt.Fprint(out, strings.Join(cmd[1:], " "), strings.Repeat("x", 2*mostAnswer))
			return strconv.Atoi(cmd[0])
		})
		target := Target{Container: &v1.Container{Env: []v1.EnvVar{{Name: "CODE", Value: "7"}, {Name: "MORE", Value: "$(CODE)"},
			{Name: "SECRET", Value: "x"}, {Name: "SECRET", ValueFrom: &v1.EnvVarSource{}}}}}
		for _, tt := range []struct {
			command string
			want    outcome
			heard   string
		}{
			{"0", succeeded, ""},
			{"$(CODE) $(MORE) $(NONE) $$(CODE)", failed, "exit code 7: $(CODE) $(NONE) $(CODE)"},
			{"7 [$(SECRET)]", failed, "exit code 7: []"}, // a value from elsewhere is empty
			{"sleep", failed, "timed out after 2s"},
			{"slowly 0", succeeded, ""},
			{"slowly sleep", failed, "timed out after 2s"},
			{"never", failed, "could not be started within 2m0s"},
			{"missing", unknown, "no such command"},
			{"away", unknown, "unavailable"},
		} {
			spec := &v1.Probe{TimeoutSeconds: 2}
			spec.Exec = &v1.ExecAction{Command: strings.Fields(tt.command)}
			a := p.ask(t.Context(), &target, spec)
			if a.outcome != tt.want || !strings.Contains(a.message, tt.heard) || len(a.message) > mostAnswer+100 {
				t.Errorf("%s: %s %.200q", tt.command, a.outcome, a.message)
			}
		}
	})
}

// TestSlowCommandsDoNotHoldUpOthers: the limit is on commands that are starting, not on those that
// run.
func TestSlowCommandsDoNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber(func(ctx context.Context, cmd []string, _ io.Writer) (int, error) {
			if cmd[0] == "slow" {
				<-ctx.Done()
			}
			return 0, ctx.Err()
		})
		target := Target{Container: &v1.Container{}}
		var asking sync.WaitGroup
		for range 2 * cap(p.slots) {
			asking.Go(func() {
				spec := &v1.Probe{TimeoutSeconds: 60}
				spec.Exec = &v1.ExecAction{Command: []string{"slow"}}
				p.ask(t.Context(), &target, spec)
			})
		}
		synctest.Wait()
		began := time.Now()
		spec := &v1.Probe{TimeoutSeconds: 1}
		spec.Exec = &v1.ExecAction{Command: []string{"quick"}}
		if a := p.ask(t.Context(), &target, spec); a.outcome != succeeded || time.Since(began) > 3*starting {
			t.Errorf("%+v after %s", a, time.Since(began))
		}
		asking.Wait()
	})
}

func TestTally(t *testing.T) {
	spec := &v1.Probe{SuccessThreshold: 2, FailureThreshold: 3}
	var counting tally
	// s success, f failure, u unknown; the line below marks where the threshold is reached.
	const heard, enough = "sssffffsffufussuff",
		/*             */ " !!  !!    !  !   "
	for i, step := range heard {
		o := map[rune]outcome{'s': succeeded, 'f': failed, 'u': unknown}[step]
		if got := counting.add(o, spec); got != (enough[i] == '!') {
			t.Errorf("step %d (%c): %v", i, step, got)
		}
	}
}

func TestHooks(t *testing.T) {
	hits := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits++
		if r.Header.Get("User-Agent") != hookAgent {
			t.Errorf("agent %q", r.Header.Get("User-Agent"))
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	target, port := at(t, server.URL)
	p := newProber(func(_ context.Context, cmd []string, out io.Writer) (int, error) {
		fmt.Fprint(out, "said")
		return len(cmd) - 1, nil
	})
	get := func(scheme v1.URIScheme, port intstr.IntOrString) *v1.LifecycleHandler {
		return &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: port, Path: "/", Scheme: scheme}}
	}
	for _, tt := range []struct {
		name string
		hook *v1.LifecycleHandler
		want string
	}{
		{"exec", &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"a"}}}, ""},
		{"exec that fails", &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"a", "b"}}}, "exit code 1: said"},
		{"any answer is good", get(v1.URISchemeHTTP, port), ""},
		{"HTTP where HTTPS was meant", get(v1.URISchemeHTTPS, port), ""},
		{"no answer", get(v1.URISchemeHTTP, intstr.FromInt32(1)), "refused"},
		{"no sleep", &v1.LifecycleHandler{Sleep: &v1.SleepAction{}}, ""},
	} {
		err := p.Hook(t.Context(), target, tt.hook)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if hits != 2 {
		t.Errorf("%d requests", hits)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Hook(ended, target, &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a sleep that is cut off: %v", err)
	}
}

// TestHooksWaitForTheRuntime: a restart of containerd neither fails a hook nor ends one early.
func TestHooksWaitForTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := 3
		p := newProber(func(_ context.Context, _ []string, out io.Writer) (int, error) {
			if away--; away >= 0 {
				fmt.Fprint(out, "half")
				return 0, fmt.Errorf("exec: %w", runtime.ErrUnavailable)
			}
			fmt.Fprint(out, "said")
			return 7, nil
		})
		hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"a"}}}
		if err := p.Hook(t.Context(), Target{}, hook); err == nil || !strings.HasSuffix(err.Error(), "exit code 7: said") {
			t.Errorf("when it is back: %v", err)
		}
		away = 1000
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Hook(ctx, Target{}, hook); !errors.Is(err, runtime.ErrUnavailable) || ctx.Err() == nil {
			t.Errorf("it does not come back: %v", err)
		}
	})
}

var key = pod.Key{Namespace: "default", Name: "web"}

// TestExtent: the running probes follow the extent of Set, and Run leaves nothing behind.
func TestExtent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		var mu sync.Mutex
		p := newProber(func(_ context.Context, cmd []string, _ io.Writer) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[cmd[0]]++
			return 0, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan pod.Key, 100)
		var running sync.WaitGroup
		running.Go(func() { _ = p.Run(ctx, out) })
		c := &v1.Container{Name: "c"}
		for name, at := range map[string]**v1.Probe{"live": &c.LivenessProbe, "ready": &c.ReadinessProbe} {
			*at = &v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1, InitialDelaySeconds: 3}
			(*at).Exec = &v1.ExecAction{Command: []string{name}}
		}
		target := Target{Pod: &v1.Pod{}, ID: "i", Container: c, StartedAt: time.Now(), Extent: Everything}
		expect := func(d time.Duration, live, ready int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if asked["live"] != live || asked["ready"] != ready {
				t.Errorf("asked %v, want %d %d", asked, live, ready)
			}
		}
		p.Set(key, []Target{target})
		expect(2900*time.Millisecond, 0, 0)
		expect(200*time.Millisecond, 1, 1)
		expect(5*time.Second, 6, 6)
		if f := p.Results(key)["i"]; f.Ready == nil || !*f.Ready || f.Failed != nil || len(out) != 1 {
			t.Errorf("found %+v, told %d times", f, len(out))
		}
		target.Extent = Readiness
		p.Set(key, []Target{target})
		expect(5*time.Second, 6, 11)
		target.Extent = Nothing
		p.Set(key, []Target{target})
		expect(5*time.Second, 6, 11)
		if f := p.Results(key)["i"]; f.Ready == nil {
			t.Errorf("forgotten: %+v", f)
		}
		p.Set(key, nil)
		if f := p.Results(key); f != nil {
			t.Errorf("remembered: %+v", f)
		}
		cancel()
		running.Wait()
	})
}

// TestWarned: a redirect to another host makes the container ready and is reported.
func TestWarned(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://localhost.invalid/", http.StatusFound))
	defer server.Close()
	target, port := at(t, server.URL)
	told := &noted{}
	p := New(Options{Log: quiet, Events: told})
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan pod.Key, 1)
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx, out) })
	target.Pod, target.StartedAt, target.Extent = &v1.Pod{}, time.Now(), Everything
	target.Container.ReadinessProbe = httpProbe(port, "/")
	target.Container.ReadinessProbe.PeriodSeconds, target.Container.ReadinessProbe.SuccessThreshold = 1, 1
	p.Set(key, []Target{target})
	<-out
	if f := p.Results(key)["i"]; f.Ready == nil || !*f.Ready {
		t.Errorf("found %+v", f)
	}
	cancel()
	running.Wait()
	if len(told.all) == 0 || told.all[0].Reason != "ProbeWarning" || !strings.HasPrefix(told.all[0].Message, "Readiness probe warning: Probe terminated redirects") {
		t.Errorf("told %+v", told.all)
	}
}

// TestKnown: results of an earlier podrun process are valid until there are new ones.
func TestKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := 0 // the exit code
		var asked []string
		var mu sync.Mutex
		f := execFunc(func(_ context.Context, cmd []string, _ io.Writer) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, cmd[0])
			return ready, nil
		})
		c := &v1.Container{Name: "c"}
		for name, at := range map[string]**v1.Probe{"startup": &c.StartupProbe, "ready": &c.ReadinessProbe} {
			*at = &v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: 2}
			(*at).Exec = &v1.ExecAction{Command: []string{name}}
		}
		old := Target{Pod: &v1.Pod{}, ID: "old", Container: c, StartedAt: time.Now().Add(-time.Minute), Extent: Everything}
		p := New(Options{Exec: f, Log: quiet, Events: &noted{}})
		old.Saved = pod.Probed{Started: new(true), Ready: new(true)}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = p.Run(ctx, make(chan pod.Key, 100)) })
		mu.Lock()
		ready = 1
		mu.Unlock()
		p.Set(key, []Target{old})
		if f := p.Results(key)["old"]; !f.IsReady(c) {
			t.Errorf("before anything is heard: %+v", f)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if f := p.Results(key)["old"]; !f.IsReady(c) {
			t.Errorf("after one failure: %+v", f)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if f := p.Results(key)["old"]; f.IsReady(c) || !f.IsStarted(c) || f.Failed != nil {
			t.Errorf("after two: %+v", f)
		}
		if got := strings.Join(asked, " "); got != "ready ready" {
			t.Errorf("asked %s", got)
		}
		old.ID, old.Saved = "new", pod.Probed{Started: new(false)}
		p.Set(key, []Target{old})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if f := p.Results(key)["new"]; f.Failed == nil {
			t.Errorf("one that had not started up: %+v", f)
		}
		cancel()
		running.Wait()
	})
}

// TestAddressChanges: the machine has another address, at which pods in its network are probed from then on.
func TestAddressChanges(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	target, port := at(t, "http://"+listener.Addr().String())
	probe := &v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1}
	probe.TCPSocket = &v1.TCPSocketAction{Port: port}
	target.Pod, target.Container.ReadinessProbe, target.Extent = &v1.Pod{}, probe, Everything
	now := target.Address
	target.Address = "127.0.0.1"
	events := &noted{}
	p := New(Options{Log: quiet, Events: events})
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan pod.Key)
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx, results) })
	defer running.Wait()
	defer cancel()
	p.Set(pod.Key{}, []Target{target})
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		events.mu.Lock()
		failed := len(events.all) > 0
		events.mu.Unlock()
		if failed {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not probed at the address before")
		}
	}
	target.Address = now
	p.Set(pod.Key{}, []Target{target})
	for {
		select {
		case <-results:
		case <-time.After(time.Minute):
			t.Fatal("it is not probed at the address that the machine has now")
		}
		if r := p.Results(pod.Key{})["i"].Ready; r != nil && *r {
			return
		}
	}
}
