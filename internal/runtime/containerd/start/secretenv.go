package start

import (
	"fmt"
	"slices"
	"strings"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/secretenv"
)

// withhold returns the spec without the values of Secrets, because containerd writes the spec to
// disk; the values are kept in the pod's memory until the process is created. It returns full
// unchanged if no variable is a Secret's.
func (st *ContainerStarter) withhold(l *launch, in oci.Input, full *specs.Spec) (*specs.Spec, error) {
	isSecret := func(v pod.Variable) bool { return v.Secret }
	first := slices.IndexFunc(in.Env, isSecret)
	if first < 0 {
		return full, nil
	}
	if !l.handler.isRunc() {
		return nil, &runtime.ReasonError{Reason: runtime.ReasonConfig, Err: fmt.Errorf(
			"container %s: the runtime %s would have the Secret's value of the variable %s kept on disk; "+
				"mount the Secret as a volume instead",
			l.Container.Name, l.handler.name, in.Env[first].Name)}
	}
	dir := st.o.Dirs.Revision(l.Pod.UID).Withheld()
	if mounted, err := mountinfo.Mounted(dir); err != nil || !mounted {
		return nil, fmt.Errorf("withholding variables of %s: no in-memory file system is mounted on %s: %w",
			l.Container.Name, dir, err)
	}
	for _, v := range in.Env {
		if v.Secret {
			l.secrets = append(l.secrets, v.Value)
		}
	}
	all := in.Env
	in.Env = slices.DeleteFunc(slices.Clone(all), isSecret)
	public, err := oci.Build(in)
	if err != nil {
		return nil, err
	}
	// The image may set a variable of the same name, whose value must not replace the container's.
	public.Process.Env = slices.DeleteFunc(public.Process.Env, func(entry string) bool {
		return slices.ContainsFunc(all, func(v pod.Variable) bool {
			return v.Secret && strings.HasPrefix(entry, v.Name+"=")
		})
	})
	if err := st.standIn(&l.handler); err != nil {
		return nil, fmt.Errorf("withholding variables of %s: %w", l.Container.Name, err)
	}
	l.withheld = &secretenv.Process{Args: full.Process.Args, Env: full.Process.Env}
	return public, nil
}

// putWithheld writes the container's withheld values, if there are any, to the file from which
// podrun's runc stand-in reads them.
func (st *ContainerStarter) putWithheld(l *launch) error {
	if l.withheld == nil {
		return nil
	}
	if err := secretenv.Write(st.o.Dirs.Revision(l.Pod.UID).Withheld(), l.ID, *l.withheld); err != nil {
		return fmt.Errorf("withholding variables of %s: %w", l.Container.Name, err)
	}
	return nil
}

// standIn makes the shim run podrun's own binary as a stand-in for runc.
func (st *ContainerStarter) standIn(h *handler) error {
	path := st.o.Dirs.StandIn(h.binary)
	if err := secretenv.Install(path, h.binary); err != nil {
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
