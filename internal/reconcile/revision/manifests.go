package revision

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Manifests loads and saves the manifests of a pod's revisions.
type Manifests struct {
	data  runtime.Data
	owner string
	log   *slog.Logger
	saved *v1.Pod // what Update saved last
}

// NewManifests returns the manifests of a pod. owner is the kind of run that is saved with each.
func NewManifests(data runtime.Data, owner string, log *slog.Logger) *Manifests {
	return &Manifests{data: data, owner: owner, log: log}
}

// Forget makes the next Update save the manifest again: another process may have changed it.
func (m *Manifests) Forget() { m.saved = nil }

// Create saves the manifest of a revision before anything of it is created, so that whatever is
// left of a pod can be attributed to its revision.
func (m *Manifests) Create(p *v1.Pod) error { return m.data.SavePod(p, m.owner) }

// Update saves the manifest that an existing revision runs, and reports whether that did not fail. It
// skips a pod that has not changed. It also skips a pod whose UID another manifest still has on the
// machine: a restarted podrun would take what is left of that for its own.
func (m *Manifests) Update(s State) bool {
	p := s.Pod
	if s.Replaced || reflect.DeepEqual(m.saved, p) {
		return true
	}
	if err := m.data.SavePod(p, m.owner); err != nil {
		m.log.Warn("saving the manifest of a running pod failed", "uid", p.UID, "err", err)
		return false
	}
	m.saved = p
	return true
}

// Running returns the manifest of the newest revision on the machine, or nil if it is not known.
// current is the manifest of the revision that the worker has chosen.
func (m *Manifests) Running(current *v1.Pod, seen pod.Observed) *v1.Pod {
	if len(seen.Data) == 0 {
		return nil
	}
	uid := seen.Data[0]
	if current != nil && current.UID == uid {
		return current
	}
	p, err := m.data.LoadPod(uid)
	if err != nil {
		if !errors.Is(err, runtime.ErrNotFound) {
			m.log.Warn("reading the manifest of a running pod failed", "uid", uid, "err", err)
		}
		return nil
	}
	return manifest.Upgraded(p)
}

// Started returns the pod and the container that an instance with a preStop hook was started from.
func (m *Manifests) Started(s State, c *pod.Container) (*v1.Pod, *v1.Container, error) {
	p := s.Pod
	if s.Unwants(*c) { // another revision, or the same UID with another manifest
		var err error
		if p, err = m.data.LoadPod(c.UID); err != nil {
			return nil, nil, err
		}
	}
	spec := pod.FindContainer(p, c.Name)
	if spec == nil || spec.Lifecycle == nil || spec.Lifecycle.PreStop == nil {
		return nil, nil, fmt.Errorf("the saved manifest of %s has no such hook", c.UID)
	}
	return p, spec, nil
}
