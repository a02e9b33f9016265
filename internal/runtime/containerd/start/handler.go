package start

import (
	"fmt"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// DefaultRuntime is the containerd runtime of pods without a runtime class.
const DefaultRuntime = "io.containerd.runc.v2"

// RuntimeClass describes how the pods of a runtime class are run.
type RuntimeClass struct {
	// Runtime is containerd's name of the runtime, or the path of its shim; empty means the runtime
	// of other pods.
	Runtime string
	// Binary is the binary that runc's shim runs instead of runc, for example crun; empty means
	// runc.
	Binary string
}

// handler is the runtime that one start uses.
type handler struct {
	name    string
	options typeurl.Any
	// binary is the binary that runc's shim runs instead of runc; empty means runc.
	binary string
}

// isRunc reports whether the shim runs runc, or a binary that accepts runc's commands.
func (h handler) isRunc() bool { return instance.IsRunc(h.name) }

// Handlers are the runtimes of this node.
type Handlers struct {
	runtimeName, runcRoot string
	runcOptions           typeurl.Any
	classes               map[string]RuntimeClass
}

// NewHandlers returns the Handlers for the runtime with that name and for the runtime classes.
// runcRoot is the directory of runc's state.
func NewHandlers(runtimeName, runcRoot string, classes map[string]RuntimeClass) (*Handlers, error) {
	options, err := typeurl.MarshalAny(&runcoptions.Options{Root: runcRoot})
	if err != nil {
		return nil, fmt.Errorf("encoding runc's options: %w", err)
	}
	return &Handlers{runtimeName: runtimeName, runcRoot: runcRoot, runcOptions: options, classes: classes}, nil
}

// of returns the runtime that the pod's runtime class names. An unknown class is an error, because
// another runtime would isolate the pod less, or in another way.
func (hs *Handlers) of(p *v1.Pod) (handler, error) {
	h := handler{name: hs.runtimeName, options: hs.runcOptions}
	if p.Spec.RuntimeClassName == nil {
		return h, nil
	}
	class, known := hs.classes[*p.Spec.RuntimeClassName]
	if !known {
		return h, runtime.Permanent("FailedCreatePodSandBox",
			fmt.Errorf("runtime class %q is not in this node's --node-config", *p.Spec.RuntimeClassName))
	}
	if class.Runtime != "" && class.Runtime != DefaultRuntime {
		h.name, h.options = class.Runtime, nil
	}
	if class.Binary == "" {
		return h, nil
	}
	h.binary = class.Binary
	var err error
	h.options, err = typeurl.MarshalAny(&runcoptions.Options{Root: hs.runcRoot, BinaryName: class.Binary})
	if err != nil {
		return h, fmt.Errorf("encoding the options of runtime class %q: %w", *p.Spec.RuntimeClassName, err)
	}
	return h, nil
}

// setIOUser makes the shim give the container's standard streams to the pod's users, so that a
// process may reopen its own, for example as /dev/stdout. first is the host user ID of the first of
// the pod's users; 0 means that the pod has no users of its own.
func (h *handler) setIOUser(first uint32) error {
	if first == 0 || h.options == nil {
		return nil
	}
	return h.change(func(options *runcoptions.Options) { options.IoUid, options.IoGid = first, first })
}

// setCgroupDriver makes runc create the container's cgroup with the given driver, which also creates
// the pod's.
func (h *handler) setCgroupDriver(driver oci.Driver) error {
	if driver != oci.Systemd {
		return nil
	}
	if h.options == nil {
		return &runtime.ReasonError{
			Reason: "FailedCreatePodSandBox",
			Err:    fmt.Errorf("runtime %s cannot be configured to create its cgroups with systemd", h.name),
		}
	}
	return h.change(func(options *runcoptions.Options) { options.SystemdCgroup = true })
}

// change changes the handler's options, which must be runc's.
func (h *handler) change(change func(*runcoptions.Options)) error {
	options := &runcoptions.Options{}
	if err := typeurl.UnmarshalTo(h.options, options); err != nil {
		return fmt.Errorf("decoding runc's options: %w", err)
	}
	change(options)
	var err error
	if h.options, err = typeurl.MarshalAny(options); err != nil {
		return fmt.Errorf("encoding runc's options: %w", err)
	}
	return nil
}
