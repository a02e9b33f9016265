package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const gpu = v1.ResourceName("example.com/gpu")

// TestBeforeTheFirstList: a resource is there when its devices are, not when its plugin has registered: who waits for the
// plugin is not to learn that it has no devices.
func TestBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	m := run(t, t.TempDir())
	p := begin(t, filepath.Join(m.dir, "gpu.sock"), &v1beta1.DevicePluginOptions{})
	p.mu.Lock() // it lists nothing yet
	err := m.register(t, request("gpu.sock"))
	if got, is := m.Devices()[gpu]; is || err != nil {
		t.Errorf("before the first list: %v, %v", got, err)
	}
	if got, err := Read(m.o.File); err != nil || len(got) != 1 || !got[0].Connected {
		t.Errorf("it is connected: %v, %v", got, err)
	}
	p.mu.Unlock()
	m.await(t, "") // it has none
}

// standIn is a device plugin.
type standIn struct {
	v1beta1.UnimplementedDevicePluginServer
	server  *grpc.Server
	options *v1beta1.DevicePluginOptions
	stopped chan struct{}
	// preferred, refuse and hang say how it answers.
	preferred []string
	refuse    error
	hang      bool

	mu      sync.Mutex
	called  []string
	devices []*v1beta1.Device
	mounts  []*v1beta1.Mount
	changed chan struct{} // closed when devices change
}

// begin serves a plugin at a socket.
func begin(t *testing.T, socket string, options *v1beta1.DevicePluginOptions) *standIn {
	t.Helper()
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{server: grpc.NewServer(), options: options, stopped: make(chan struct{}), changed: make(chan struct{})}
	v1beta1.RegisterDevicePluginServer(s.server, s)
	go func() { _ = s.server.Serve(l) }()
	end := sync.OnceFunc(func() { close(s.stopped); s.server.Stop() })
	t.Cleanup(end)
	return s
}

func (s *standIn) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return s.options, nil
}

func (s *standIn) ListAndWatch(_ *v1beta1.Empty, to grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		s.mu.Lock()
		all, changed := s.devices, s.changed
		s.mu.Unlock()
		if err := to.Send(&v1beta1.ListAndWatchResponse{Devices: all}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-to.Context().Done():
			return nil
		case <-s.stopped:
			return nil
		}
	}
}

// list makes it list devices; the names of unhealthy ones begin with a minus sign.
func (s *standIn) list(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices = nil
	for _, name := range names {
		d := &v1beta1.Device{ID: strings.TrimPrefix(name, "-"), Health: v1beta1.Healthy}
		if d.ID != name {
			d.Health = v1beta1.Unhealthy
		}
		s.devices = append(s.devices, d)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *standIn) call(format string, all ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called = append(s.called, fmt.Sprintf(format, all...))
}

func (s *standIn) calls() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.called, "; ")
}

func (s *standIn) GetPreferredAllocation(_ context.Context, r *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	of := r.ContainerRequests[0]
	s.call("prefer %d of %v with %v", of.AllocationSize, of.AvailableDeviceIDs, of.MustIncludeDeviceIDs)
	return &v1beta1.PreferredAllocationResponse{ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: s.preferred}}}, s.refuse
}

func (s *standIn) Allocate(ctx context.Context, r *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	s.call("allocate %v", r.ContainerRequests[0].DevicesIds)
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{
		Envs: map[string]string{"GPU": "yes"}, Mounts: s.mounts,
	}}}, s.refuse
}

func (s *standIn) PreStartContainer(_ context.Context, r *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	s.call("start %v", r.DevicesIds)
	return &v1beta1.PreStartContainerResponse{}, s.refuse
}

// machine is a Manager that runs.
type machine struct {
	*Manager
	dir     string
	changed chan struct{}
	end     func()
}

func run(t *testing.T, dir string) *machine {
	t.Helper()
	m, err := Open(Options{
		Dir: filepath.Join(dir, "device-plugins"), File: filepath.Join(dir, "remembered.json"), Log: slog.New(slog.DiscardHandler),
		Reserved: func(name v1.ResourceName) bool { return name == "example.com/named" },
	})
	if err != nil {
		t.Fatal(err)
	}
	out := &machine{Manager: m, dir: m.o.Dir, changed: make(chan struct{}, 1)}
	m.OnChange(func() {
		select {
		case out.changed <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	out.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(out.end)
	return out
}

// register registers a plugin as one does.
func (m *machine) register(t *testing.T, r *v1beta1.RegisterRequest) error {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(m.dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(t.Context(), r)
	return err
}

// await waits until the machine has these devices, named as by standIn.list; "none" if there is no plugin.
func (m *machine) await(t *testing.T, want string) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		got := "none"
		if all, is := m.Devices()[gpu]; is {
			var names []string
			for id, d := range all {
				if !d.Healthy {
					id = "-" + id
				}
				names = append(names, id)
			}
			got = fmt.Sprint(len(names), names)
			if len(names) < 2 {
				got = strings.Join(names, "")
			}
		}
		if got == want {
			return
		}
		select {
		case <-m.changed:
		case <-deadline:
			t.Fatalf("devices: %s, want %s", got, want)
		}
	}
}

// listing returns the plugin of a resource once its first list has come: from then on what a test lists for it stays.
func (m *machine) listing(t *testing.T, name v1.ResourceName) *plugin {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		m.mu.Lock()
		of, p := m.resources[name].devices, m.resources[name].plugin
		m.mu.Unlock()
		if of != nil {
			return p
		}
		select {
		case <-m.changed:
		case <-deadline:
			t.Fatalf("%s lists nothing", name)
		}
	}
}

func request(endpoint string) *v1beta1.RegisterRequest {
	return &v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: endpoint, ResourceName: string(gpu)}
}

func TestLife(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := run(t, dir)
	socket := filepath.Join(m.dir, "gpu.sock")
	p := begin(t, socket, &v1beta1.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true})
	if err := m.register(t, request("gpu.sock")); err != nil {
		t.Fatal(err)
	}
	m.await(t, "") // registered is not available
	p.list("a")
	m.await(t, "a")
	p.list("-a")
	m.await(t, "-a")
	p.list("a")
	m.await(t, "a")
	if got, err := m.Prefer(t.Context(), gpu, []string{"a", "b"}, []string{"b"}, 1); got != nil || err != nil {
		t.Errorf("it prefers %v, %v", got, err)
	}
	if got, preStart, err := m.Allocate(t.Context(), gpu, []string{"a"}); err != nil || got.Envs["GPU"] != "yes" || !preStart {
		t.Errorf("%v, %v, %v", got, preStart, err)
	}
	if err := m.PreStart(t.Context(), gpu, []string{"a"}, false); err != nil {
		t.Error(err)
	}
	if got := p.calls(); got != "prefer 1 of [a b] with [b]; allocate [a]; start [a]" {
		t.Error(got)
	}
	// Another one of the same name takes its place, and it is asked for everything.
	q := begin(t, filepath.Join(m.dir, "other.sock"), &v1beta1.DevicePluginOptions{})
	q.list("b")
	if err := m.register(t, request("other.sock")); err != nil {
		t.Fatal(err)
	}
	m.await(t, "b")
	p.server.Stop() // the former one's end is nothing to the new one
	time.Sleep(50 * time.Millisecond)
	m.await(t, "b")
	// Killed: noticed at once. Back, and registered again: used.
	q.server.Stop()
	m.await(t, "-b")
	if got, err := Read(m.o.File); err != nil || len(got) != 1 || got[0].Connected || time.Since(got[0].Lost) > time.Minute {
		t.Errorf("it is gone: %v, %v", got, err)
	}
	if _, _, err := m.Allocate(t.Context(), gpu, []string{"b"}); err == nil || !strings.Contains(err.Error(), "is not there") {
		t.Error(err)
	}
	q = begin(t, filepath.Join(m.dir, "other.sock"), &v1beta1.DevicePluginOptions{})
	q.list("b")
	if err := m.register(t, request("other.sock")); err != nil {
		t.Fatal(err)
	}
	m.await(t, "b")
	known := func(want string) {
		t.Helper()
		if got, err := Read(m.o.File); err != nil || fmt.Sprint(got) != want {
			t.Errorf("known: %v, %v, want %s", got, err, want)
		}
	}
	known("[{example.com/gpu " + filepath.Join(m.dir, "other.sock") + " true map[b:{true []}] 0001-01-01 00:00:00 +0000 UTC 3}]")
	// podrun's restart without plugins: none is connected.
	m.end()
	if err := Leave(m.o.File); err != nil {
		t.Error(err)
	}
	if got, err := Read(m.o.File); err != nil || len(got) != 1 || got[0].Connected || got[0].Lost.IsZero() || got[0].Devices["b"].Healthy {
		t.Errorf("without plugins: %v, %v", got, err)
	}
	// podrun's restart: the plugin does nothing, and is there at once.
	m = run(t, dir)
	q.list("c")
	m.await(t, "c")
	known("[{example.com/gpu " + filepath.Join(m.dir, "other.sock") + " true map[c:{true []}] 0001-01-01 00:00:00 +0000 UTC 3}]")
	if m.Disconnect(gpu, filepath.Join(m.dir, "gpu.sock")) { // not the one in use
		t.Error("the one in use is disconnected")
	}
	m.await(t, "c")
	// Its socket in plugins_registry is removed: as when it is killed, but it is not called again, also not after a restart.
	if !m.Disconnect(gpu, filepath.Join(m.dir, "other.sock")) {
		t.Error("the one in use is not disconnected")
	}
	m.await(t, "-c")
	m.end()
	m = run(t, dir)
	time.Sleep(retry + retry/2)
	m.await(t, "-c")
	m.mu.Lock()
	m.resources[gpu].lost = time.Now().Add(-graceOfLost)
	m.mu.Unlock()
	m.await(t, "none")
}

// TestPreStart: the plugin that is there now says whether it prepares devices; if none is there, the last one that was.
func TestPreStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := run(t, dir)
	var p *standIn
	serve := func(required bool) {
		t.Helper()
		p = begin(t, filepath.Join(m.dir, "gpu.sock"), &v1beta1.DevicePluginOptions{PreStartRequired: required})
		p.list("a")
		if err := m.register(t, request("gpu.sock")); err != nil {
			t.Fatal(err)
		}
		m.await(t, "a")
	}
	expect := func(was bool, called, err string) {
		t.Helper()
		got := m.PreStart(t.Context(), gpu, []string{"a"}, was)
		if p.calls() != called || (got == nil) != (err == "") || got != nil && !strings.Contains(got.Error(), err) {
			t.Errorf("%v, and called: %q", got, p.calls())
		}
	}
	serve(true)
	expect(false, "start [a]", "")
	serve(false)
	expect(true, "", "")
	p.server.Stop()
	m.await(t, "-a")
	expect(true, "", "")
	serve(true)
	p.server.Stop()
	m.await(t, "-a")
	expect(false, "", "is not there")
	m.end()
	m = run(t, dir) // it has not answered this podrun
	m.await(t, "-a")
	expect(false, "", "")
	expect(true, "", "is not there")
}

// TestAnotherAtTheSocket: a plugin at the socket of a former one has what it registers, and not what the former one had:
// its devices would be given out twice. So it is after a restart of podrun too.
func TestAnotherAtTheSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := run(t, dir)
	at := filepath.Join(m.dir, "x.sock")
	p := begin(t, at, &v1beta1.DevicePluginOptions{})
	p.list("0")
	other := request("x.sock")
	other.ResourceName = "example.com/other"
	for _, r := range []*v1beta1.RegisterRequest{request("x.sock"), other} {
		if err := m.register(t, r); err != nil {
			t.Fatal(err)
		}
	}
	m.await(t, "0")
	p.server.Stop()
	m.await(t, "-0")
	p = begin(t, at, &v1beta1.DevicePluginOptions{})
	p.list("1")
	if err := m.register(t, other); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for deadline := time.Now().Add(time.Minute); !m.Devices()["example.com/other"]["1"].Healthy; {
			if time.Sleep(time.Millisecond); time.Now().After(deadline) {
				t.Fatal("it is not used")
			}
		}
		time.Sleep(retry + retry/2) // it is not called for what it has not registered
		m.await(t, "-0")
		if _, _, err := m.Allocate(t.Context(), gpu, []string{"0"}); err == nil {
			t.Error("its device is given out under two names")
		}
		// podrun's restart.
		m.end()
		m = run(t, dir)
	}
	if err := m.register(t, request("x.sock")); err != nil {
		t.Fatal(err)
	}
	m.await(t, "1")
}

func TestRefused(t *testing.T) {
	t.Parallel()
	m := run(t, t.TempDir())
	begin(t, filepath.Join(m.dir, "gpu.sock"), &v1beta1.DevicePluginOptions{})
	if err := os.WriteFile(filepath.Join(m.dir, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin(t, filepath.Join(m.dir, "strange.sock"), &v1beta1.DevicePluginOptions{})
	if err := os.Chown(filepath.Join(m.dir, "strange.sock"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(r *v1beta1.RegisterRequest){
		"v1beta1 is":          func(r *v1beta1.RegisterRequest) { r.Version = "v1" },
		"name of a socket":    func(r *v1beta1.RegisterRequest) { r.Endpoint = "../gpu.sock" },
		"no such file":        func(r *v1beta1.RegisterRequest) { r.Endpoint = "none.sock" },
		"is not a socket":     func(r *v1beta1.RegisterRequest) { r.Endpoint = "file.sock" },
		"belong to root":      func(r *v1beta1.RegisterRequest) { r.Endpoint = "strange.sock" },
		"--node-config":       func(r *v1beta1.RegisterRequest) { r.ResourceName = "example.com/named" },
		"other than kubernet": func(r *v1beta1.RegisterRequest) { r.ResourceName = "gpu" },
		"must consist of":     func(r *v1beta1.RegisterRequest) { r.ResourceName = "example.com/a b" },
	} {
		r := request("gpu.sock")
		change(r)
		if err := m.register(t, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", r, err, want)
		}
	}
	if _, err := Open(m.o); !errors.Is(err, ErrKubelet) {
		t.Errorf("beside a kubelet: %v", err)
	}
	if got := m.Devices(); len(got) != 0 {
		t.Errorf("resources: %v", got)
	}
}
