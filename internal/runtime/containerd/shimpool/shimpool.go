// Package shimpool lets the containers of a sandbox share one shim: it finds the shims that run,
// starts those that containerd would start, and kills the shim of a sandbox that is removed, if it
// still runs.
//
// Starting and killing a shim without containerd is package shim. Shims of interrupted starts and
// of lost containers are killed by package orphan.
//
// Begin reading at Pool and Shim.
package shimpool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/orphan"
	shims "podrun.io/podrun/internal/shim"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/memo"
)

// shimProtocol is the prefix of the addresses of shims that podrun started.
const shimProtocol = "ttrpc+unix://"

// Shim is the containerd shim process that serves all containers of a sandbox. Containers of one
// group share a shim anyway, but containerd still runs the shim's program once per container to
// find it. If containerd keeps sandbox records, it can be given the shim's address instead, which
// saves a third of the time of a start.
//
// No containerd call returns that address: it is in a file of containerd's state, which is found
// through the working directory of the shim. If the file cannot be read, containers only start more
// slowly.
//
// podrun starts the shims of other sandboxes itself, in the same way in which containerd started
// the first one. The zero Shim is no shared shim.
type Shim struct {
	address string
	// model is how podrun has to start the shim; nil if the shim already runs.
	model *shims.Model
	// recorded means that containerd has the sandbox's record.
	recorded bool
	// refused means that a start with the address failed: the containers of this sandbox start
	// without it.
	refused bool
}

// kind identifies shims that containerd starts in the same way. After a reconnection there may be
// another containerd, which starts them differently.
type kind struct {
	runtime    string
	connection int64
}

func (p *Pool) kindOf(l Launch) kind { return kind{l.Runtime, p.client.Connection()} }

// Launch describes the start of an instance.
type Launch struct {
	// ID is the instance's.
	ID      string
	Sandbox pod.Sandbox
	// Runtime is the name of the containerd runtime.
	Runtime string
}

// Shared reports whether the shim is given to containerd by its address. If not, the task gets its
// shim through the group.
func (s Shim) Shared() bool { return s.address != "" }

// shimVersion is the oldest version of the shim protocol with which a shim can be shared in this
// way.
const shimVersion = 3

// Options configure a Pool. All are required.
type Options struct {
	Client  *daemon.Client
	Records *instance.SandboxRecords
	Orphans *orphan.Cleaner
	// Address and Namespace are containerd's socket and the containerd namespace.
	Address, Namespace string
	Dirs               layout.Dirs
	Log                *slog.Logger
}

// Pool has the shims of sandboxes: it finds and starts those that containers share, and kills
// them. Its methods may be called concurrently.
type Pool struct {
	client             *daemon.Client
	records            *instance.SandboxRecords
	orphans            *orphan.Cleaner
	address, namespace string
	dirs               layout.Dirs
	log                *slog.Logger

	launcher *shims.Nursery
	// bySandbox maps sandbox IDs to their shims.
	bySandbox memo.Map[string, Shim]
	// templates maps a kind of shim to how containerd starts it; nil means that podrun does not start
	// such shims itself.
	templates memo.Map[kind, *shims.Model]
}

// New returns a Pool that has started no shim.
func New(o Options) *Pool {
	return &Pool{
		client: o.Client, records: o.Records, orphans: o.Orphans, address: o.Address, namespace: o.Namespace,
		dirs: o.Dirs, log: o.Log, launcher: shims.NewNursery(),
	}
}

// Reap waits for the started shims that have exited.
func (p *Pool) Reap() { p.launcher.Reap() }

// Refuse makes the containers of the launch's sandbox start without a shared shim, because a start
// with it failed, and leaves it to containerd to start such shims.
func (p *Pool) Refuse(l Launch, s Shim) {
	p.bySandbox.Put(l.Sandbox.ID, Shim{refused: true})
	if s.model != nil {
		p.templates.Put(p.kindOf(l), nil)
	}
}

// Shared returns the shim that serves the launch's sandbox, or else the one that podrun starts for
// it (Ready). If neither is possible, Shim.Shared of the result is false, and containerd starts the
// shim.
func (p *Pool) Shared(ctx context.Context, l Launch) Shim {
	s, ok := p.bySandbox.Get(l.Sandbox.ID)
	if !p.client.KeepsSandboxes || s.refused {
		return Shim{}
	}
	if path := shims.SocketOf(p.dirs.SandboxFiles().Shim(l.Sandbox.ID)); !ok && path != "" {
		s.address = shimProtocol + path // started before podrun was restarted
	}
	if s.address != "" && reaches(ctx, s.address) {
		return s
	}
	// The shim exited because its last container was removed.
	s.address = ""
	if s.model, _ = p.templates.Get(p.kindOf(l)); s.model != nil {
		s.address = shimProtocol + s.model.Socket(GroupOf(l.Sandbox))
	}
	return s
}

// reaches reports whether a shim accepts connections at the address.
func reaches(ctx context.Context, address string) bool {
	conn, err := daemon.Dial(ctx, strings.TrimPrefix(address, "ttrpc+"))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// Ready starts the launch's shim and creates the sandbox record, as far as necessary. The returned
// function waits for the record.
func (p *Pool) Ready(ctx context.Context, l Launch, s Shim) (wait func() error, err error) {
	none := func() error { return nil }
	if s.address == "" {
		return none, nil
	}
	if s.model != nil {
		home := p.dirs.SandboxFiles().Shim(l.Sandbox.ID)
		if err := p.launcher.Start(s.model, home, GroupOf(l.Sandbox), l.ID); err != nil {
			return nil, err
		}
	}
	if s.recorded {
		return none, nil
	}
	done := make(chan error, 1)
	go func() {
		done <- p.records.Create(ctx, l.Sandbox.ID, map[string]string{instance.LabelPodUID: string(l.Sandbox.UID)})
	}()
	return func() error { return <-done }, nil
}

// Join sets the shim's address in the request, both in its own field and in runc's options, where
// older versions of containerd 2 read it. runc is nil for a runtime without such options.
func Join(request *tasks.CreateTaskRequest, s Shim, runc typeurl.Any) error {
	if s.address == "" {
		return nil
	}
	request.TaskApiAddress, request.TaskApiVersion = s.address, shimVersion
	if runc == nil {
		return nil // not a runtime of runc's options
	}
	// The options of the request replace those of the container, so they start as a copy of them.
	own := &runcoptions.Options{}
	if err := typeurl.UnmarshalTo(runc, own); err != nil {
		return fmt.Errorf("decoding runc's options: %w", err)
	}
	own.TaskApiAddress, own.TaskApiVersion = s.address, shimVersion //nolint:staticcheck // for older versions
	options, err := typeurl.MarshalAny(own)
	if err != nil {
		return fmt.Errorf("encoding runc's options: %w", err)
	}
	request.Options = typeurl.MarshalProto(options)
	return nil
}

// CacheShim caches which shim serves the instance whose process is pid.
func (p *Pool) CacheShim(l Launch, s Shim, pid int) {
	was, _ := p.bySandbox.Get(l.Sandbox.ID)
	if s.address != "" {
		p.bySandbox.Put(l.Sandbox.ID, Shim{address: s.address, recorded: true})
		return
	}
	if !p.client.KeepsSandboxes || was.refused {
		return
	}
	parent, err := sys.Parent(pid)
	if err != nil {
		return // the process has exited
	}
	address, err := shimAddress(l.ID, parent)
	if err != nil {
		p.log.Debug("address of the shim cannot be read", "container", l.ID, "err", err)
		return
	}
	p.bySandbox.Put(l.Sandbox.ID, Shim{address: address, recorded: was.recorded})
	if _, known := p.templates.Get(p.kindOf(l)); known {
		return
	}
	socket := strings.TrimPrefix(address, shimProtocol)
	model, err := shims.ModelOf(parent, p.address, p.namespace, GroupOf(l.Sandbox), socket)
	if err != nil {
		p.log.Debug("podrun cannot start shims itself; containerd starts them", "runtime", l.Runtime, "err", err)
	}
	p.templates.Put(p.kindOf(l), model)
}

// Kill kills the shim of a sandbox that has no containers any more, and removes its directory. As
// a rule the shim has exited with the last container, but it stays if it still knows a container
// that containerd does not know any more.
func (p *Pool) Kill(ctx context.Context, key pod.Key, s pod.Sandbox) error {
	if err := p.killListening(ctx, key, s); err != nil {
		return fmt.Errorf("ending the shim of sandbox %s: %w", s.ID, err)
	}
	if err := p.removeHome(s.ID); err != nil {
		return err
	}
	p.bySandbox.Drop(s.ID)
	return nil
}

// killListening kills the shim that still listens for containers of the sandbox, if containerd has
// no task of them.
func (p *Pool) killListening(ctx context.Context, key pod.Key, s pod.Sandbox) error {
	var sockets []string
	for range 25 { // it exits a moment after the last container
		var err error
		sockets, err = shims.Listening(p.address, p.namespace, GroupOf(s))
		if err != nil || len(sockets) == 0 {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
	if idle, err := p.orphans.Idle(ctx, key, GroupOf(s)); err != nil || !idle {
		return err
	}
	listens := func(pid int) bool { return shims.Holds(pid, sockets) }
	return shims.Kill(listens, "-namespace", p.namespace, "-address", p.address)
}

// removeHome removes the shim's socket and the directory of the shim that podrun started for a
// sandbox.
func (p *Pool) removeHome(sandboxID string) error {
	home := p.dirs.SandboxFiles().Shim(sandboxID)
	if path := shims.SocketOf(home); path != "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the socket of the shim of sandbox %s: %w", sandboxID, err)
		}
	}
	if err := os.RemoveAll(home); err != nil { // trusted: only podrun and the shim write to it
		return fmt.Errorf("removing the shim's directory of sandbox %s: %w", sandboxID, err)
	}
	p.launcher.Reap()
	return nil
}

// GroupOf returns the group of the sandbox's containers, which share one shim.
func GroupOf(s pod.Sandbox) string { return cmp.Or(s.Details.Group, s.ID) }

// SweepHomes removes the directories of shims whose sandboxes no longer exist.
func (p *Pool) SweepHomes(known func(sandboxID string) bool) error {
	entries, err := os.ReadDir(p.dirs.SandboxFiles().Shims())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing the directories of shims: %w", err)
	}
	for _, e := range entries {
		if known(e.Name()) {
			continue
		}
		if err := p.removeHome(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// shimAddress returns the address of the shim with the process ID shim, which serves the instance
// id.
func shimAddress(id string, shim int) (string, error) {
	// The shim's working directory is that of the instance for which the shim was started; it is
	// next to this instance's.
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(shim), "cwd"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile( // trusted: a directory of podrun's own
		filepath.Join(filepath.Dir(dir), id, "bootstrap.json"))
	if err != nil {
		return "", err
	}
	var bootstrap struct {
		Version           int
		Address, Protocol string
	}
	if err := json.Unmarshal(text, &bootstrap); err != nil {
		return "", fmt.Errorf("decoding bootstrap.json: %w", err)
	}
	if bootstrap.Version < shimVersion || bootstrap.Protocol != "ttrpc" ||
		!strings.HasPrefix(bootstrap.Address, "unix://") {
		return "", fmt.Errorf("a shim of version %d at %s+%s cannot be shared",
			bootstrap.Version, bootstrap.Protocol, bootstrap.Address)
	}
	return bootstrap.Protocol + "+" + bootstrap.Address, nil
}
