package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/secretenv"
	"podrun.io/podrun/internal/sys"
)

// withhold keeps the values of Secrets out of the spec, which containerd has on disk: they wait in the
// pod's memory until the process is made. A container without them is left alone.
func (r *Runtime) withhold(l *launch, in oci.Input, full *specs.Spec) (*specs.Spec, error) {
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
	all := in.Env
	in.Env = slices.DeleteFunc(slices.Clone(all), isSecret)
	public, err := oci.Build(in)
	if err != nil {
		return nil, err
	}
	// The image's value of such a variable is not the container's.
	public.Process.Env = slices.DeleteFunc(public.Process.Env, func(entry string) bool {
		return slices.ContainsFunc(all, func(v pod.Variable) bool { return v.Secret && strings.HasPrefix(entry, v.Name+"=") })
	})
	if err := r.standIn(&l.handler); err != nil {
		return nil, fmt.Errorf("withholding variables of %s: %w", l.Container.Name, err)
	}
	l.withheld = &secretenv.Process{Args: full.Process.Args, Env: full.Process.Env}
	return public, nil
}

// putWithheld gives the stand-in what is withheld from the container, if anything is.
func (r *Runtime) putWithheld(l *launch) error {
	if l.withheld == nil {
		return nil
	}
	if err := secretenv.Write(r.Dirs.Withheld(l.Pod.UID), l.ID, *l.withheld); err != nil {
		return fmt.Errorf("withholding variables of %s: %w", l.Container.Name, err)
	}
	return nil
}

// dropWithheld removes what was withheld from an instance that has no process.
func (r *Runtime) dropWithheld(uid pod.UID, id string) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	if err := secretenv.Remove(r.Dirs.Withheld(uid), id); err != nil {
		return fmt.Errorf("removing what was withheld from container %s: %w", id, err)
	}
	return nil
}

// standIn has the shim run podrun's own binary in place of runc.
func (r *Runtime) standIn(h *handler) error {
	path := r.Dirs.StandIn(h.binary)
	if h.binary != "" {
		if err := secretenv.StandFor(path, h.binary); err != nil {
			return err
		}
	}
	if err := sys.LinkSelf(path); err != nil {
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

// legacyVariable is the one by which the former version had a container name the file with what was withheld from it.
const legacyVariable = "PODRUN_WITHHELD"

// legacyWithheld gives the stand-in, by the container's ID, what the former version withheld from a container that still
// runs, and takes that version's variable out of a further process. Where the file is follows from the container's labels.
func (r *Runtime) legacyWithheld(c containers.Container, process *specs.Process) error {
	i := identity(c)
	if err := layout.CheckUID(i.UID); err != nil {
		return err
	}
	dir := r.Dirs.Withheld(i.UID)
	at := slices.Index(process.Env, legacyVariable+"="+filepath.Join(dir, i.Name))
	if at < 0 {
		return nil
	}
	var options runcoptions.Options
	if err := typeurl.UnmarshalTo(c.Runtime.Options, &options); err != nil || layout.RootOfStandIn(options.BinaryName) != r.Dirs.Root {
		return nil // a variable as any other: nothing is withheld
	}
	// The former version's stand-in knows the variable only.
	err := secretenv.Adopt(dir, i.Name, c.ID, func() error { return sys.LinkSelf(options.BinaryName) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is this version's container
	}
	if err != nil {
		return fmt.Errorf("withholding variables of %s: %w", i.Name, err)
	}
	process.Env = slices.Delete(process.Env, at, at+1)
	return nil
}
