package pluginregistry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/sys/watch"
)

// standIn is a plugin.
type standIn struct {
	registration.UnimplementedRegistrationServer
	info   *registration.PluginInfo
	told   chan string
	server *grpc.Server
}

func begin(t *testing.T, socket string, info *registration.PluginInfo) *standIn {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	s := &standIn{info: info, told: make(chan string, 9), server: grpc.NewServer()}
	registration.RegisterRegistrationServer(s.server, s)
	go func() { _ = s.server.Serve(l) }()
	t.Cleanup(s.server.Stop)
	return s
}

func (s *standIn) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return s.info, nil
}

func (s *standIn) NotifyRegistrationStatus(_ context.Context, r *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	s.told <- fmt.Sprint(r.PluginRegistered, " ", r.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

// handler writes down what it is called for.
type handler struct {
	calls chan string
	mu    sync.Mutex
	fails error // once
	inUse map[string]string
}

func (h *handler) Register(_ context.Context, name, endpoint string, versions []string) error {
	h.calls <- fmt.Sprint("register ", name, " ", filepath.Base(endpoint), " ", versions)
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.fails
	h.fails = nil
	if h.inUse == nil {
		h.inUse = map[string]string{}
	}
	h.inUse[name] = endpoint
	return err
}

func (h *handler) Deregister(name, endpoint string) bool {
	h.calls <- fmt.Sprint("deregister ", name, " ", filepath.Base(endpoint))
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inUse[name] == endpoint
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plugins_registry")
	h := &handler{calls: make(chan string, 9)}
	run := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		r := New(Options{Dir: dir, File: filepath.Join(t.TempDir(), "refused"), Handlers: map[string]Handler{"DevicePlugin": h}, Log: slog.New(slog.DiscardHandler)})
		go func() { ended <- r.Run(ctx) }()
		end = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
		})
		t.Cleanup(end)
		return end
	}
	expect := func(from chan string, want string) {
		t.Helper()
		if got := <-from; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	info := func(kind, name, endpoint string) *registration.PluginInfo {
		return &registration.PluginInfo{Type: kind, Name: name, Endpoint: endpoint, SupportedVersions: []string{"v1beta1"}}
	}
	end := run()
	for {
		if _, err := os.Stat(dir); err == nil {
			break
		}
	}
	at := filepath.Join(dir, "a.sock")
	a := begin(t, at, info("DevicePlugin", "a", ""))
	expect(h.calls, "register a a.sock [v1beta1]")
	expect(a.told, "true ")
	// Killed: its socket stays, and nothing is said. It makes it anew: it is registered anew.
	a.server.Stop()
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	a = begin(t, at, info("DevicePlugin", "a", "/run/a.sock"))
	expect(h.calls, "deregister a a.sock")
	expect(h.calls, "register a a.sock [v1beta1]")
	expect(a.told, "true ")
	// In a directory below, and of a type that nobody knows.
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := begin(t, filepath.Join(dir, "sub", "b.sock"), info("Strange", "b", ""))
	expect(b.told, `false the plugin cannot be used: podrun has no plugins of the type "Strange"`)
	// A failure that may heal is not told, but tried again.
	h.mu.Lock()
	h.fails = errors.New("not yet")
	h.mu.Unlock()
	c := begin(t, filepath.Join(dir, "c.sock"), info("DevicePlugin", "c", ""))
	expect(h.calls, "register c c.sock [v1beta1]")
	expect(h.calls, "register c c.sock [v1beta1]")
	expect(c.told, "true ")
	if err := os.Remove(filepath.Join(dir, "c.sock")); err != nil {
		t.Fatal(err)
	}
	expect(h.calls, "deregister c c.sock")
	// podrun's restart: those that answer are there again, and were not deregistered.
	end()
	for _, name := range []string{".hidden.sock", "strange.sock"} {
		begin(t, filepath.Join(dir, name), info("DevicePlugin", name, ""))
	}
	if err := os.Chown(filepath.Join(dir, "strange.sock"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	run()
	expect(h.calls, "register a a.sock [v1beta1]")
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	expect(h.calls, "deregister a a.sock")
}

// TestMostPlugins: no more sockets are asked than the machine bears, and one that goes makes room.
func TestMostPlugins(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "pr") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for i := range mostPlugins + 2 {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, fmt.Sprintf("%03d.sock", i)), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	log := slog.New(slog.DiscardHandler)
	r, w := New(Options{Dir: dir, File: filepath.Join(t.TempDir(), "refused"), Log: log}), watch.New(log)
	ctx, cancel := context.WithCancel(t.Context())
	defer r.running.Wait()
	defer cancel()
	r.compare(ctx, w)
	if len(r.plugins) != mostPlugins || !r.full {
		t.Errorf("%d plugins", len(r.plugins))
	}
	for _, gone := range []string{"000.sock", "001.sock", "002.sock"} {
		if err := os.Remove(filepath.Join(dir, gone)); err != nil {
			t.Fatal(err)
		}
	}
	r.compare(ctx, w)
	if len(r.plugins) != mostPlugins-1 || r.full {
		t.Errorf("%d plugins when three have gone", len(r.plugins))
	}
}

// TestBeneath: a plugin's endpoint is below the directory of plugins, and no link.
func TestBeneath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "plugins", "good"), 0o755), os.Symlink("good", filepath.Join(dir, "plugins", "evil")),
		os.Symlink("/", filepath.Join(dir, "root"))); err != nil {
		t.Fatal(err)
	}
	for endpoint, want := range map[string]bool{
		"plugins/good/csi.sock": true, "plugins/none/csi.sock": true, "plugins/evil/csi.sock": false, "plugins/evil": false,
		"root/run/x.sock": false, "../x.sock": false,
	} {
		at, err := Beneath(dir, dir+"/"+endpoint)
		if is := err == nil && at == filepath.Join(dir, endpoint); is != want {
			t.Errorf("%s: %q, %v", endpoint, at, err)
		}
	}
}

// TestNamedTwice: a plugin that two sockets name is in use until both are gone.
func TestNamedTwice(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "r")
	h := &handler{calls: make(chan string, 9)}
	r := New(Options{Dir: dir, File: filepath.Join(t.TempDir(), "refused"), Handlers: map[string]Handler{"DevicePlugin": h}, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	info := &registration.PluginInfo{Type: "DevicePlugin", Name: "n", Endpoint: "/e", SupportedVersions: []string{"v1"}}
	for _, name := range []string{"a.sock", "b.sock"} {
		for os.MkdirAll(dir, 0o755) != nil {
			t.Fatal("no directory")
		}
		begin(t, filepath.Join(dir, name), info)
		if got := <-h.calls; got != "register n e [v1]" {
			t.Error(got)
		}
	}
	if err := os.Remove(filepath.Join(dir, "b.sock")); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-h.calls:
		t.Errorf("one socket is there, and it is said: %s", got)
	case <-time.After(200 * time.Millisecond):
	}
	if err := os.Remove(filepath.Join(dir, "a.sock")); err != nil {
		t.Fatal(err)
	}
	if got := <-h.calls; got != "deregister n e" {
		t.Error(got)
	}
}

// TestSuccessors: of plugins of one name the newest is used, and a former one again when that has gone, or was killed and
// has left its socket. What goes and was not in use does nothing to the others.
func TestSuccessors(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "r")
	h := &handler{calls: make(chan string, 99)}
	r, w := New(Options{Dir: dir, File: filepath.Join(t.TempDir(), "refused"), Handlers: map[string]Handler{"K": h}, Log: slog.New(slog.DiscardHandler)}), watch.New(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); r.running.Wait() }()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	all := map[string]*standIn{}
	expect := func(want ...string) {
		t.Helper()
		r.compare(ctx, w)
		for _, one := range want {
			select {
			case got := <-h.calls:
				if got != one {
					t.Errorf("%q, want %q", got, one)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("not called: %q", one)
			}
		}
		select {
		case got := <-h.calls:
			t.Errorf("called too: %q", got)
		case <-time.After(200 * time.Millisecond):
		}
	}
	serve := func(name string) {
		t.Helper()
		all[name] = begin(t, filepath.Join(dir, name), &registration.PluginInfo{Type: "K", Name: "n", SupportedVersions: []string{"1"}})
		expect("register n " + name + " [1]")
	}
	remove := func(name string) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	serve("a")
	serve("b")
	remove("b")
	expect("deregister n b", "register n a [1]")
	serve("c")
	remove("a")
	expect("deregister n a") // c goes on
	serve("d")
	all["d"].server.Stop() // killed: its socket stays
	expect("deregister n d", "register n c [1]")
	all["c"].server.Stop() // it may be back, and there is no other
	expect()
	serve("e")
	expect("deregister n c") // found dead now
	remove("d")
	remove("e")
	expect("deregister n e")
}
