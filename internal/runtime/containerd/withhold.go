package containerd

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/withheld"
)

// withhold keeps the values of Secrets out of the spec, which containerd has on disk: they wait in the
// pod's memory until the process is made. A container without them is left alone.
func (r *Runtime) withhold(l *launch, in ocispec.Input, full *specs.Spec) (*specs.Spec, error) {
	isSecret := func(v pod.Variable) bool { return v.Secret }
	if !slices.ContainsFunc(in.Env, isSecret) {
		return full, nil
	}
	if l.handler.own || !strings.Contains(filepath.Base(l.handler.name), "runc") {
		r.Log.Warn("the container runtime keeps a Secret's value with the container", "container", l.Container.Name, "runtime", l.handler.name)
		return full, nil
	}
	dir := r.Dirs.Withheld(l.Pod.UID)
	if mounted, err := mountinfo.Mounted(dir); err != nil || !mounted {
		return nil, fmt.Errorf("withholding variables of %s: no memory is mounted on %s: %w", l.Container.Name, dir, err)
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
	if err := host.LinkSelf(r.Dirs.StandIn()); err != nil {
		return nil, fmt.Errorf("withholding variables of %s: %w", l.Container.Name, err)
	}
	options := &runcoptions.Options{}
	if err := typeurl.UnmarshalTo(r.runcOptions, options); err != nil {
		return nil, fmt.Errorf("decoding runc's options: %w", err)
	}
	options.BinaryName = r.Dirs.StandIn()
	if l.handler.options, err = typeurl.MarshalAny(options); err != nil {
		return nil, fmt.Errorf("encoding runc's options: %w", err)
	}
	return public, nil
}
