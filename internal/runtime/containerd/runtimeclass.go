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

// RuntimeClass is how the pods of a class are run.
type RuntimeClass struct {
	// Runtime is containerd's name for it, or the path of its shim; empty: the one that other pods have.
	Runtime string
	// Binary is what the shim of runc runs in runc's place, as crun; empty: runc.
	Binary string
}

// handler is the runtime of one start.
type handler struct {
	name    string
	options typeurl.Any
	// binary is what the shim of runc runs in runc's place; empty: runc.
	binary string
}

// isRunc reports a shim that runs runc, or a binary that takes runc's commands.
func (h handler) isRunc() bool { return strings.Contains(filepath.Base(h.name), "runc") }

// handlerOf returns the runtime that the pod's class names. An unknown class is an error: another runtime
// would isolate less, or otherwise.
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
