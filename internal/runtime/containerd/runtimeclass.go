package containerd

import (
	"fmt"
	"path/filepath"
	"strings"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime"
)

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
func (h handler) isRunc() bool { return strings.Contains(filepath.Base(h.name), "runc") }

// handlerOf returns the runtime that the pod's runtime class names. An unknown class is an error,
// because another runtime would isolate the pod less, or in another way.
func (r *Runtime) handlerOf(p *v1.Pod) (handler, error) {
	h := handler{name: r.RuntimeName, options: r.runcOptions}
	if p.Spec.RuntimeClassName == nil {
		return h, nil
	}
	class, known := r.RuntimeClasses[*p.Spec.RuntimeClassName]
	if !known {
		return h, &runtime.ReasonError{Reason: "FailedCreatePodSandBox",
			Err: fmt.Errorf("runtime class %q is not in this node's --node-config", *p.Spec.RuntimeClassName)}
	}
	if class.Runtime != "" && class.Runtime != DefaultRuntime {
		h.name, h.options = class.Runtime, nil
	}
	if class.Binary == "" {
		return h, nil
	}
	h.binary = class.Binary
	var err error
	h.options, err = typeurl.MarshalAny(&runcoptions.Options{Root: r.Dirs.Runc(), BinaryName: class.Binary})
	if err != nil {
		return h, fmt.Errorf("encoding the options of runtime class %q: %w", *p.Spec.RuntimeClassName, err)
	}
	return h, nil
}
