package containerd

import (
	"fmt"
	"path/filepath"
	"slices"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/withheld"
)

// withhold keeps the values of Secrets out of the spec, which containerd has on disk: they wait in the
// pod's memory until the process is made. A container without them is left alone.
func (r *Runtime) withhold(l *launch, in ocispec.Input, full *specs.Spec) (*specs.Spec, error) {
	isSecret := func(v pod.Variable) bool { return v.Secret }
	first := slices.IndexFunc(in.Env, isSecret)
	if first < 0 {
		return full, nil
	}
	if !l.handler.isRunc() {
		return nil, &runtime.ReasonError{Reason: "CreateContainerConfigError", Err: fmt.Errorf(
			"container %s: the runtime %s would have the Secret's value of the variable %s kept on disk; mount the Secret as a volume instead",
			l.Container.Name, l.handler.name, in.Env[first].Name)}
	}
	dir := r.Dirs.Withheld(l.Pod.UID)
	if mounted, err := mountinfo.Mounted(dir); err != nil || !mounted {
		return nil, fmt.Errorf("withholding variables of %s: no memory is mounted on %s: %w", l.Container.Name, dir, err)
	}
	for _, v := range in.Env {
		if v.Secret {
			l.secrets = append(l.secrets, v.Value)
		}
	}
	in.Env = slices.DeleteFunc(slices.Clone(in.Env), isSecret)
	public, err := ocispec.Build(in)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, l.Container.Name) // each start replaces what the one before had
	if err := withheld.Write(path, withheld.Process{Args: full.Process.Args, Env: full.Process.Env}); err != nil {
		return nil, fmt.Errorf("withholding variables of %s: %w", l.Container.Name, err)
	}
	public.Process.Env = append(public.Process.Env, withheld.Mark(path))
	if err := r.standIn(&l.handler); err != nil {
		return nil, fmt.Errorf("withholding variables of %s: %w", l.Container.Name, err)
	}
	return public, nil
}

// standIn has the shim run podrun's own binary in place of runc.
func (r *Runtime) standIn(h *handler) error {
	path := r.Dirs.StandIn(h.binary)
	if h.binary != "" {
		if err := withheld.StandFor(path, h.binary); err != nil {
			return err
		}
	}
	if err := host.LinkSelf(path); err != nil {
		return err
	}
	options := &runcoptions.Options{}
	if h.options != nil {
		if err := typeurl.UnmarshalTo(h.options, options); err != nil {
			return fmt.Errorf("decoding runc's options: %w", err)
		}
	}
	options.BinaryName = path
	var err error
	if h.options, err = typeurl.MarshalAny(options); err != nil {
		return fmt.Errorf("encoding runc's options: %w", err)
	}
	return nil
}
