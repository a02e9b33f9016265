package containerd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	shims "podrun.io/podrun/internal/shim"
	"podrun.io/podrun/internal/sys"
)

// shim is the process that serves all containers of a sandbox. Containers of one group share it anyway,
// but containerd still runs the shim's program once per container to find it out. Where containerd keeps
// sandbox records it can be told the address instead, which saves a third of a start.
//
// There is no call that tells the address: it is in a file of containerd's state, found through the
// shim's working directory. If it cannot be read, containers are merely started more slowly.
//
// With the first shim as a model, podrun starts those of other sandboxes itself.
type shim struct {
	address string
	// model is what the shim is to be started after; nil: it runs.
	model *shims.Model
	// recorded says that containerd has the sandbox's record.
	recorded bool
	// refused says that a start with the address failed: the sandbox does without.
	refused bool
}

// kind is what shims are alike by. The containerd of another connection may be another, which starts them otherwise.
type kind struct {
	runtime    string
	connection int64
}

func (r *Runtime) kindOf(l *launch) kind { return kind{l.handler.name, r.client.Connection()} }

// shimVersion is the oldest protocol of shims that can be shared so.
const shimVersion = 3

// sharedShim returns the shim that serves the launch's sandbox, or one that is to be started for it; one without
// an address if neither can be.
func (r *Runtime) sharedShim(ctx context.Context, l *launch) shim {
	s, ok := r.shims.Get(l.Sandbox.ID)
	if !r.client.KeepsSandboxes || s.refused {
		return shim{}
	}
	if path := shims.SocketOf(r.Dirs.ShimHome(l.Sandbox.ID)); !ok && path != "" {
		s.address = shimProtocol + path // of before podrun was started again
	}
	if s.address != "" && reaches(ctx, s.address) {
		return s
	}
	// Its last container was removed and it has ended.
	s.address = ""
	if s.model, _ = r.models.Get(r.kindOf(l)); s.model != nil {
		s.address = shimProtocol + s.model.Socket(l.group)
	}
	return s
}

// shimProtocol begins the addresses of shims that podrun started.
const shimProtocol = "ttrpc+unix://"

func reaches(ctx context.Context, address string) bool {
	conn, err := daemon.Dial(ctx, strings.TrimPrefix(address, "ttrpc+"))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// readyShim begins to make what the launch's shim takes; the returned function waits for the rest.
func (r *Runtime) readyShim(ctx context.Context, l *launch) (wait func() error, err error) {
	none := func() error { return nil }
	if l.shim.address == "" {
		return none, nil
	}
	if l.shim.model != nil {
		if err := r.nursery.Start(l.shim.model, r.Dirs.ShimHome(l.Sandbox.ID), l.group, l.ID); err != nil {
			return nil, err
		}
	}
	if l.shim.recorded {
		return none, nil
	}
	done := make(chan error, 1)
	go func() { done <- r.putRecord(ctx, l.Sandbox.ID, map[string]string{labelPodUID: string(l.Sandbox.UID)}) }()
	return func() error { return <-done }, nil
}

// joinShim names the shim in the request; both in the field for it and in runc's options, where older
// versions of containerd 2 look.
func (r *Runtime) joinShim(request *tasks.CreateTaskRequest, l *launch) error {
	s := l.shim
	if s.address == "" {
		return nil
	}
	request.TaskApiAddress, request.TaskApiVersion = s.address, shimVersion
	if l.handler.options == nil {
		return nil // not a runtime of runc's options
	}
	// The request's options are taken in place of the container's, so they begin with those.
	own := &runcoptions.Options{}
	if err := typeurl.UnmarshalTo(l.handler.options, own); err != nil {
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

// learnShim keeps in mind which shim serves the instance whose process is pid.
func (r *Runtime) learnShim(l *launch, pid int) {
	was, _ := r.shims.Get(l.Sandbox.ID)
	if l.shim.address != "" {
		r.shims.Put(l.Sandbox.ID, shim{address: l.shim.address, recorded: true})
		return
	}
	if !r.client.KeepsSandboxes || was.refused {
		return
	}
	parent, err := sys.Parent(pid)
	if err != nil {
		return // it has ended
	}
	address, err := shimAddress(l.ID, parent)
	if err != nil {
		r.Log.Debug("the shim's address cannot be read", "container", l.ID, "why", err)
		return
	}
	r.shims.Put(l.Sandbox.ID, shim{address: address, recorded: was.recorded})
	if _, known := r.models.Get(r.kindOf(l)); known {
		return
	}
	model, err := shims.ModelOf(parent, r.Address, r.Namespace, l.group, strings.TrimPrefix(address, shimProtocol))
	if err != nil {
		r.Log.Debug("containerd starts all shims", "runtime", l.handler.name, "why", err)
	}
	r.models.Put(r.kindOf(l), model)
}

// endShim ends the shim of a sandbox of which no container is left. As a rule it has ended with the last of them,
// but one stays that knows of a container that containerd has forgotten.
func (r *Runtime) endShim(ctx context.Context, key pod.Key, s pod.Sandbox) error {
	if err := r.endListening(ctx, key, s); err != nil {
		return fmt.Errorf("ending the shim of sandbox %s: %w", s.ID, err)
	}
	return r.removeShimHome(s.ID)
}

// endListening kills the shim that still listens for a sandbox's containers, when containerd has no task of them.
func (r *Runtime) endListening(ctx context.Context, key pod.Key, s pod.Sandbox) error {
	name := shims.SocketName(r.Address, r.Namespace, groupOf(s))
	var sockets []string
	for range 25 { // it ends a moment after the last container
		var err error
		if sockets, err = shims.Listening(name); err != nil || len(sockets) == 0 {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
	if idle, err := r.idle(ctx, key, groupOf(s)); err != nil || !idle {
		return err
	}
	listens := func(pid int) bool { return shims.Holds(pid, sockets) }
	return shims.Kill(listens, "-namespace", r.Namespace, "-address", r.Address)
}

func (r *Runtime) removeShimHome(sandboxID string) error {
	home := r.Dirs.ShimHome(sandboxID)
	if path := shims.SocketOf(home); path != "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the socket of the shim of sandbox %s: %w", sandboxID, err)
		}
	}
	if err := os.RemoveAll(home); err != nil { // trusted: podrun's and the shim's
		return fmt.Errorf("removing the shim's directory of sandbox %s: %w", sandboxID, err)
	}
	r.nursery.Reap()
	return nil
}

// groupOf names what has one shim: the containers of a sandbox.
func groupOf(s pod.Sandbox) string { return cmp.Or(s.Details.Group, s.ID) }

// sweepShimHomes removes the directories of shims whose sandboxes are gone.
func (r *Runtime) sweepShimHomes(known func(sandboxID string) bool) error {
	entries, err := os.ReadDir(r.Dirs.ShimHomes())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for shims that are left: %w", err)
	}
	for _, e := range entries {
		if known(e.Name()) {
			continue
		}
		if err := r.removeShimHome(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func shimAddress(id string, shim int) (string, error) {
	// The directory of the instance that the shim was started for, next to this one's.
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(shim), "cwd"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), id, "bootstrap.json")) // trusted: a directory of podrun's own
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
	if bootstrap.Version < shimVersion || bootstrap.Protocol != "ttrpc" || !strings.HasPrefix(bootstrap.Address, "unix://") {
		return "", fmt.Errorf("a shim of version %d at %s+%s cannot be shared", bootstrap.Version, bootstrap.Protocol, bootstrap.Address)
	}
	return bootstrap.Protocol + "+" + bootstrap.Address, nil
}

// fromRuntime reports that a failure to start is the low-level runtime's: about the container itself,
// its command or its mounts, not about containerd or the shim.
func fromRuntime(err error) bool {
	return err != nil && strings.Contains(err.Error(), "OCI runtime")
}

// layGhost removes a container that the low-level runtime has though containerd has none: what containerd or a shim
// was making when it was killed. Its process has never been started.
func (r *Runtime) layGhost(ctx context.Context, id string) {
	root := filepath.Join(r.Dirs.Runc(), r.Namespace)
	if _, err := os.Lstat(filepath.Join(root, id)); err != nil {
		return
	}
	container, err := sys.WordOperand(id)
	if err != nil {
		return
	}
	runc := sys.Program{Name: "runc", Options: []string{"--root", root, "delete", "--force"}, Operands: []sys.Operand{container}}
	if out, err := runc.Run(ctx, runtime.Timeout); err != nil {
		r.Log.Debug("what an interrupted start left in runc stays", "container", id, "why", err, "output", out.Text())
	}
}
