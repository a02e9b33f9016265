package reconcile

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// reasonConfig is the reason in the status of a container whose environment or other configuration
// cannot be made.
const reasonConfig = "CreateContainerConfigError"

// inside collects what is visible inside the container and resolves its environment variables.
func (t *starter) inside(s state, c *v1.Container, sandbox pod.Sandbox) (pod.Inside, error) {
	in := t.visible(s, sandbox)
	in.Container = c
	fail := func(err error) (pod.Inside, error) {
		return in, &runtime.ReasonError{Reason: reasonConfig, Err: err}
	}
	var err error
	if keys := env.FileKeys(c); len(keys) > 0 {
		if in.Files, err = t.volumes.Files(s.pod, keys); err != nil {
			return fail(err)
		}
	}
	if in.Env, err = env.Resolve(in); err != nil {
		return fail(err)
	}
	return in, nil
}

// visible returns the part of the input that all containers of the pod share.
func (t *starter) visible(s state, sandbox pod.Sandbox) pod.Inside {
	in := pod.Inside{Pod: s.pod, Sandbox: sandbox, Objects: s.objects, Node: t.node}
	if t.hostIP != "" {
		in.HostIPs = []string{t.hostIP}
	}
	return in
}
