// Package pluginregistry is a node's side of Kubernetes' plugin registration (API v1), of which the kubelet's
// plugin manager is the original: it finds the sockets of plugins below a directory, asks each what it is, and
// passes it to the handler of its type. A plugin whose socket is removed, or made anew, is not registered any
// more.
//
// A socket that refuses connections is one that a killed plugin has left, or will be listened on in a moment:
// it is asked again each second, and costs no back-off.
//
// Of several plugins of one type and name the newest is used, for it may be the former one's successor. When it is
// gone, by its socket or by its process, the others are registered again: none that lives stays unused.
//
// Begin reading at Registry.Run and Registry.compare.
package pluginregistry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/sys/pace"
	"podrun.io/podrun/internal/sys/socket"
	"podrun.io/podrun/internal/sys/watch"
)

const (
	// infoTimeout is how long a plugin may take to say what it is, and notifyTimeout to hear what became of
	// it. The kubelet gives 1 s and 5 s.
	infoTimeout   = 5 * time.Second
	notifyTimeout = 5 * time.Second
	// firstRetry is when a registration that failed is tried again; the time doubles up to lastRetry, as in
	// the kubelet.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2*time.Minute + 2*time.Second
	// staleRetry is when a socket that refuses connections is tried again.
	staleRetry = time.Second
	// mostPlugins is how many sockets are asked. Whoever may put one into the directory must not fill the memory.
	mostPlugins = 128
	// mostDirectories is how many are watched: what the kernel watches is bounded for all of root's programs together.
	mostDirectories = 128
)

// ErrRefused is that a plugin cannot be used as it is: another attempt would not help. It is told so.
var ErrRefused = errors.New("the plugin cannot be used")

// errStale is that nobody listens on a plugin's socket.
var errStale = errors.New("nobody listens on the socket")

// Handler uses the plugins of one type. Its methods may be called concurrently for different plugins.
type Handler interface {
	// Register begins to use the plugin that answers at the endpoint, the path of a socket. An error that
	// is ErrRefused is final; others are tried again.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	// Deregister ends the use of the plugin at the endpoint, and reports that it was the one in use.
	Deregister(name, endpoint string) bool
}

// Options configure a Registry. All are required.
type Options struct {
	// Dir is where plugins put their sockets: /var/lib/kubelet/plugins_registry.
	Dir string
	// Handlers are the handlers by the plugins' types, such as DevicePlugin.
	Handlers map[string]Handler
	// File is where it is written which plugins cannot be registered; see ReadRefused.
	File string
	Log  *slog.Logger
}

// Registry registers plugins.
type Registry struct {
	o       Options
	running sync.WaitGroup
	plugins map[string]*plugin // by the path of the socket
	full    bool               // there are too many
	asking  pace.Pace
	watched map[string]bool // the directories that are looked into
	crowded bool            // there are too many of them
	walks   pace.Pace       // of these

	mu      sync.Mutex
	uses    map[use]map[*plugin]bool // by the sockets that name it
	refused map[string]error         // why, by the path of the socket
}

// use is a plugin that is registered. Several sockets may name the same one, such as those of a pod and the next one.
type use struct{ kind, name, endpoint string }

func (r *Registry) begin(of use, p *plugin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uses[of] == nil {
		r.uses[of] = map[*plugin]bool{}
	}
	r.uses[of][p] = true
}

// end reports that no other socket names the plugin.
func (r *Registry) end(of use, p *plugin) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.uses[of], p)
	if len(r.uses[of]) > 0 {
		return false
	}
	delete(r.uses, of)
	return true
}

// deregister ends what a socket has registered, and if that was in use, makes other plugins of the same type and name
// be registered again. It reports that no other socket names it.
func (r *Registry) deregister(of use, p *plugin) (last bool) {
	if last = r.end(of, p); last && r.o.Handlers[of.kind].Deregister(of.name, of.endpoint) {
		for _, other := range r.rivals(of) {
			other.wake()
		}
	}
	return last
}

// rivals returns the sockets of other plugins of the same type and name.
func (r *Registry) rivals(of use) (all []*plugin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, named := range r.uses {
		if other.kind == of.kind && other.name == of.name && other.endpoint != of.endpoint {
			all = slices.AppendSeq(all, maps.Keys(named))
		}
	}
	return all
}

// wakeDead makes those sockets be asked again on which nobody listens any more, if there is another plugin of the same
// type and name.
func (r *Registry) wakeDead() {
	r.mu.Lock()
	dead := map[use][]*plugin{}
	for of, named := range r.uses {
		dead[of] = slices.Collect(maps.Keys(named))
	}
	r.mu.Unlock()
	for of, named := range dead {
		if len(r.rivals(of)) == 0 {
			continue
		}
		for _, p := range named {
			if socket.IsFree(p.path) {
				p.wake()
			}
		}
	}
}

// plugin is a plugin's socket that was found.
type plugin struct {
	path   string
	socket socket.Identity
	stop   context.CancelFunc
	ended  chan struct{} // closed when the plugin is not registered any more
	again  chan struct{} // it is to be registered again
}

func (p *plugin) wake() {
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// New returns a Registry.
func New(o Options) *Registry {
	return &Registry{
		o: o, plugins: map[string]*plugin{}, asking: pace.Pace{AtOnce: 2 * mostPlugins, Every: time.Second},
		uses: map[use]map[*plugin]bool{}, watched: map[string]bool{}, refused: map[string]error{},
		walks: pace.Pace{AtOnce: 10, Every: 200 * time.Millisecond},
	}
}

// Run makes the directory, and registers plugins until ctx ends. It deregisters none then: they are used again
// by the next podrun.
func (r *Registry) Run(ctx context.Context) error {
	if err := os.MkdirAll(r.o.Dir, layout.ModePlugins); err != nil {
		return err
	}
	r.mu.Lock()
	r.write() // what a former podrun wrote is out of date
	r.mu.Unlock()
	w := watch.New(r.o.Log)
	ctx, cancel := context.WithCancel(ctx)
	defer r.running.Wait()
	defer cancel()
	r.running.Go(func() {
		if err := w.Run(ctx); err != nil && ctx.Err() == nil {
			r.o.Log.Warn("plugins are found late: their directory cannot be watched", "err", err)
		}
	})
	tick := time.NewTicker(10 * time.Second) // in case a change was not noticed
	defer tick.Stop()
	for {
		if err := r.walks.Wait(ctx); err != nil {
			return err
		}
		r.compare(ctx, w)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.Events():
		case <-tick.C:
		}
	}
}

// compare compares the sockets that there are with those that were there before.
func (r *Registry) compare(ctx context.Context, w *watch.Watcher) {
	found, err := r.find(w)
	if err != nil {
		r.o.Log.Warn("the directory of plugins cannot be read", "err", err)
		return
	}
	for path, p := range r.plugins {
		if found[path] != p.socket {
			p.stop()
			<-p.ended
			delete(r.plugins, path)
		}
	}
	r.wakeDead()
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if r.plugins[path] != nil {
			continue
		}
		if len(r.plugins) >= mostPlugins {
			if !r.full {
				r.o.Log.Warn("there are too many plugins; this one and others are not asked", "socket", path, "most", mostPlugins)
			}
			r.full = true
			break
		}
		r.full = false
		with, stop := context.WithCancel(ctx)
		p := &plugin{path: path, socket: found[path], stop: stop}
		p.ended, p.again = make(chan struct{}), make(chan struct{}, 1)
		r.plugins[path] = p
		r.running.Go(func() {
			defer close(p.ended)
			r.keep(with, ctx, p)
		})
	}
}

// follows watches a directory, and reports whether it is looked into. One that was looked into before is so
// again, however many others there are by now: a plugin in it may be in use.
func (r *Registry) follows(dir string, w *watch.Watcher) bool {
	if !r.watched[dir] && len(r.watched) >= mostDirectories {
		if !r.crowded {
			r.o.Log.Warn("there are too many directories of plugins; this one and others are not looked into",
				"directory", dir, "most", mostDirectories)
		}
		r.crowded = true
		return false
	}
	r.watched[dir] = true
	if err := w.Add(dir); err != nil {
		r.o.Log.Debug("a directory of plugins is not watched", "directory", dir, "err", err)
	}
	return true
}

// leave watches no longer the directories that are gone.
func (r *Registry) leave(w *watch.Watcher) {
	for dir := range r.watched {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			w.Remove(dir)
			delete(r.watched, dir)
			r.crowded = false
		}
	}
}

// find returns the sockets of root's in the directory and those below it, which it watches too. Names that
// begin with a dot are passed over, as by the kubelet.
func (r *Registry) find(w *watch.Watcher) (map[string]socket.Identity, error) {
	r.leave(w)
	found := map[string]socket.Identity{}
	return found, filepath.WalkDir(r.o.Dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && path == r.o.Dir:
			return err
		case err != nil: // it is gone, or its path is longer than any: others are not to suffer for it
			return fs.SkipDir
		case e.IsDir() && (path != r.o.Dir && strings.HasPrefix(e.Name(), ".") || !r.follows(path, w)):
			return fs.SkipDir
		case e.IsDir():
			return nil
		case e.Type() != fs.ModeSocket || strings.HasPrefix(e.Name(), "."):
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil // it is gone
		}
		if of, err := socket.IdentityOf(path, info); err == nil {
			found[path] = of
		}
		return nil
	})
}

// keep registers the plugin at a socket, and deregisters it when its own context ends and that of all does not, or when
// nobody listens on the socket and another plugin has its name.
func (r *Registry) keep(ctx, all context.Context, p *plugin) {
	wait := firstRetry
	var logged error
	var is *use // what it has registered
	if r.asking.Wait(ctx) != nil {
		return
	}
	defer r.refuse(p.path, nil)
	for {
		of, err := r.register(ctx, p)
		if is != nil && (err != nil || of != *is) && ctx.Err() == nil {
			r.o.Log.Info("plugin deregistered", "type", is.kind, "name", is.name, "socket", p.path, "err", err)
			r.deregister(*is, p)
			is = nil
		}
		if err == nil {
			r.o.Log.Info("plugin registered", "type", of.kind, "name", of.name, "socket", p.path)
			is, wait, logged = &of, firstRetry, nil
			r.refuse(p.path, nil)
			select {
			case <-p.again:
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			if is != nil && all.Err() == nil && r.deregister(*is, p) {
				r.o.Log.Info("plugin deregistered", "type", is.kind, "name", is.name, "socket", p.path)
			}
			return
		}
		stale := errors.Is(err, errStale)
		if stale {
			r.refuse(p.path, nil)
		} else {
			r.refuse(p.path, err)
		}
		if !stale && !errtext.Same(err, logged) {
			logged = err
			r.o.Log.Warn("a plugin cannot be registered", "socket", p.path, "err", err)
		}
		next := time.After(wait)
		switch {
		case errors.Is(err, ErrRefused):
			next = nil // until it makes its socket anew
		case stale:
			next = time.After(staleRetry)
		default:
			wait = min(2*wait, lastRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// Beneath returns the clean path of the endpoint that a plugin names. An error is that it is not below dir. A plugin
// names any path: only below the directory of plugins, which is root's, are sockets that podrun has reason to call. A
// link there may lead to another plugin's socket.
func Beneath(dir, endpoint string) (string, error) {
	in, err := filepath.Rel(dir, endpoint)
	if err != nil || !filepath.IsLocal(in) {
		return "", fmt.Errorf("%w: its endpoint %q is not below %s", ErrRefused, endpoint, dir)
	}
	at := dir
	for _, name := range strings.Split(in, string(filepath.Separator)) {
		at = filepath.Join(at, name)
		if info, err := os.Lstat(at); err == nil && info.Mode().Type() == fs.ModeSymlink {
			return "", fmt.Errorf("%w: its endpoint %q is a link, or behind one", ErrRefused, endpoint)
		}
	}
	return filepath.Clean(endpoint), nil
}

// endpoint returns the path of the socket at which the plugin is used.
func endpoint(info *registration.PluginInfo, socket string) string {
	if info.Endpoint == "" {
		return socket
	}
	return info.Endpoint
}

// register tries once to register the plugin at a socket.
func (r *Registry) register(ctx context.Context, p *plugin) (use, error) {
	if socket.IsFree(p.path) {
		return use{}, errStale
	}
	conn, err := socket.Client(p.path)
	if err != nil {
		return use{}, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	asked, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	info, err := client.GetInfo(asked, &registration.InfoRequest{})
	if err != nil {
		return use{}, fmt.Errorf("asking what it is: %w", err)
	}
	of := use{info.Type, info.Name, endpoint(info, p.path)}
	h, is := r.o.Handlers[of.kind]
	if !is {
		err = fmt.Errorf("%w: podrun has no plugins of the type %q", ErrRefused, of.kind)
	} else {
		r.begin(of, p)
		if err = h.Register(ctx, of.name, of.endpoint, info.SupportedVersions); err != nil {
			r.end(of, p)
		}
	}
	if err != nil && !errors.Is(err, ErrRefused) {
		return of, err // it may heal: a plugin that is told so may give up
	}
	result := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		result.Error = err.Error()
	}
	told, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if _, unheard := client.NotifyRegistrationStatus(told, result); unheard != nil && err == nil {
		r.deregister(of, p)
		return of, fmt.Errorf("telling it that it is registered: %w", unheard)
	}
	return of, err
}
