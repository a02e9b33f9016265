package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/api/services/tasks/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// shim is the process that serves all containers of a sandbox. Containers of one group share it anyway,
// but containerd still runs the shim's program once per container to find it out. Where containerd keeps
// sandbox records it can be told the address instead, which saves a third of a start.
//
// There is no call that tells the address: it is in a file of containerd's state, found through the
// shim's working directory. If it cannot be read, containers are merely started more slowly.
type shim struct {
	address string
	// recorded says that containerd has the sandbox's record.
	recorded bool
	// refused says that a start with the address failed: the sandbox does without.
	refused bool
}

// shimVersion is the oldest protocol of shims that can be shared so.
const shimVersion = 3

// sharedShim returns the shim that serves the sandbox; one without an address if there is none or it
// cannot be shared.
func (r *Runtime) sharedShim(ctx context.Context, sb pod.Sandbox) shim {
	sandboxID := sb.ID
	s, ok := r.shims.get(sandboxID)
	if !r.sandboxStore || !ok || s.refused {
		return shim{}
	}
	conn, err := dial(ctx, strings.TrimPrefix(s.address, "ttrpc+"))
	if err != nil {
		// Its last container was removed and it has ended. The next start makes a new one.
		r.shims.put(sandboxID, shim{recorded: s.recorded})
		return shim{}
	}
	conn.Close()
	if !s.recorded {
		if err := r.putRecord(ctx, sandboxID, map[string]string{labelPodUID: string(sb.UID)}); err != nil {
			r.Log.Debug("no sandbox record", "sandbox", sandboxID, "why", err)
			return shim{}
		}
		s.recorded = true
		r.shims.put(sandboxID, s)
	}
	return s
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

// learnShim finds the address of the shim that serves the instance whose process is pid.
func (r *Runtime) learnShim(l *launch, pid int) {
	was, _ := r.shims.get(l.Sandbox.ID)
	if !r.sandboxStore || l.shim.address != "" || was.refused {
		return
	}
	address, err := shimAddress(l.id, pid)
	if err != nil {
		r.Log.Debug("the shim's address cannot be read", "container", l.id, "why", err)
		return
	}
	r.shims.put(l.Sandbox.ID, shim{address: address, recorded: was.recorded})
}

func shimAddress(id string, pid int) (string, error) {
	parent, err := parentOf(pid)
	if err != nil {
		return "", err
	}
	// The directory of the instance that the shim was started for, next to this one's.
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(parent), "cwd"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), id, "bootstrap.json"))
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

func parentOf(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// pid (name) state parent …; the name may hold anything.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	return strconv.Atoi(fields[1])
}

// fromRuntime reports that a failure to start is the low-level runtime's: about the container itself,
// its command or its mounts, not about containerd or the shim.
func fromRuntime(err error) bool {
	if started := (*runtime.StartError)(nil); errors.As(err, &started) {
		return true // whatever its text has been made of
	}
	return err != nil && strings.Contains(err.Error(), "OCI runtime") && !isGhost(err)
}

// isGhost reports that the low-level runtime still has a container of this ID though containerd has none:
// what containerd or a shim was making when it was killed.
func isGhost(err error) bool {
	return err != nil && strings.Contains(err.Error(), "container with given ID already exists")
}

// layGhost removes such a container. Its process has never been started.
func (r *Runtime) layGhost(ctx context.Context, id string) {
	root := filepath.Join(r.Dirs.Runc(), r.Namespace)
	if _, err := os.Lstat(filepath.Join(root, id)); err != nil {
		return
	}
	if out, err := exec.CommandContext(ctx, "runc", "--root", root, "delete", "--force", id).CombinedOutput(); err != nil {
		r.Log.Debug("what an interrupted start left in runc stays", "container", id, "why", err, "output", string(out))
	}
}
