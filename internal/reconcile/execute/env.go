package execute

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
)

// inside collects what is visible inside the container and resolves its environment variables.
func (t *starter) inside(s revision.State, c *v1.Container, sandbox pod.Sandbox) (pod.Inside, error) {
	in := t.visible(s, sandbox)
	in.Container = c
	fail := func(err error) (pod.Inside, error) {
		return in, &runtime.ReasonError{Reason: runtime.ReasonConfig, Err: err}
	}
	var err error
	if keys := env.FileKeys(c); len(keys) > 0 {
		if in.Files, err = t.volumes.Files(s.Pod, keys); err != nil {
			return fail(err)
		}
	}
	in.Env, err = env.Resolve(in)
	switch {
	case errors.Is(err, env.ErrNoAddress): // the machine's network may come later
		return fail(err)
	case err != nil:
		return fail(&runtime.PermanentError{Err: err})
	}
	return in, nil
}

// visible returns the part of the input that all containers of the pod share.
func (t *starter) visible(s revision.State, sandbox pod.Sandbox) pod.Inside {
	in := pod.Inside{Pod: s.Pod, Sandbox: sandbox, Objects: s.Objects, Node: t.node}
	if ip := t.hostIP(); ip != "" {
		in.HostIPs = []string{ip}
	}
	return in
}
