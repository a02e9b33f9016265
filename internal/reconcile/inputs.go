package reconcile

import (
	"context"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// reasonConfig is the reason in the status of a container whose environment or other configuration
// cannot be made.
const reasonConfig = "CreateContainerConfigError"

// inside collects what is visible inside the container and resolves its environment variables.
func (w *worker) inside(c *v1.Container, s pod.Sandbox) (pod.Inside, error) {
	in := w.visible(s)
	in.Container = c
	fail := func(err error) (pod.Inside, error) {
		return in, &runtime.ReasonError{Reason: reasonConfig, Err: err}
	}
	var err error
	if keys := fileKeys(c); len(keys) > 0 {
		if in.Files, err = w.o.Volumes.Files(w.state.pod, keys); err != nil {
			return fail(err)
		}
	}
	if in.Env, err = env.Resolve(in); err != nil {
		return fail(err)
	}
	return in, nil
}

// visible returns the part of the input that all containers of the pod share.
func (w *worker) visible(s pod.Sandbox) pod.Inside {
	in := pod.Inside{Pod: w.state.pod, Sandbox: s, Objects: w.state.objects, Node: w.o.Node}
	if w.o.HostIP != "" {
		in.HostIPs = []string{w.o.HostIP}
	}
	return in
}

func fileKeys(c *v1.Container) []pod.FileKey {
	var keys []pod.FileKey
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil {
			keys = append(keys, pod.FileKey{
				Volume: e.ValueFrom.FileKeyRef.VolumeName,
				Path:   e.ValueFrom.FileKeyRef.Path,
			})
		}
	}
	return keys
}

// learn stores the current objects. It clears the failures that a missing object may have caused,
// so that these are tried again at once.
func (w *worker) learn(now pod.Objects) {
	if reflect.DeepEqual(w.state.objects, now) {
		return
	}
	w.state.objects = now
	w.failures.retry(reasonConfig, runtime.ReasonFailedMount)
	if w.state.pod != nil && len(w.state.pod.Spec.ImagePullSecrets) > 0 {
		w.failures.retry(plan.ReasonErrImagePull)
	}
	w.state.stale = true
}

// refresh updates the volumes of a running pod to the current manifest and objects.
func (w *worker) refresh(ctx context.Context, seen pod.Observed) {
	if !w.state.stale || w.state.pod == nil {
		return
	}
	mine, _ := seen.Split(w.state.pod.UID)
	if len(mine.Sandboxes) == 0 {
		w.state.stale = false // nothing runs yet; a start creates what it needs
		return
	}
	err := w.o.Volumes.Refresh(ctx, w.visible(mine.Sandboxes[0]))
	w.recorder.recordOutdated(err)
	w.state.stale = err != nil
}

// removeData unmounts the volumes of a revision and then removes everything that was saved for it.
func (w *worker) removeData(ctx context.Context, uid pod.UID) error {
	if err := w.o.Volumes.Teardown(ctx, uid); err != nil {
		return err
	}
	return w.o.Data.RemoveData(ctx, w.key, uid)
}
