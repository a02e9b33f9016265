// Package selection finds the pods that down removes: it lists the pods on the machine, has its
// caller choose among them (Choose), leaves out those of which a checkpoint cannot be read
// (checkpoint.Store.Withheld), and acquires the others (Selection.Acquire).
//
// The package removes nothing.
//
// Begin reading at Choose.
package selection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Runtime reads the pods on the machine.
type Runtime interface {
	List(ctx context.Context) ([]pod.Observed, error)
	LoadPod(uid pod.UID) (*v1.Pod, error)
	Store() *checkpoint.Store
}

// Selection are the pods that were chosen to be removed.
type Selection struct {
	// Pods are the chosen pods that may be changed.
	Pods    map[pod.Key]bool
	runtime Runtime
	// critical are those of all pods that others may need until they have ended, such as storage drivers.
	critical map[pod.Key]bool
	// withheld are the errors of the chosen pods that must not be changed.
	withheld []error
	// all reports that every pod on the machine was chosen.
	all bool
}

// Choose calls pick with the pods on the machine. strays are pods that may have left something that
// no list shows.
func Choose(
	ctx context.Context, r Runtime, strays []pod.Key, pick func([]*v1.Pod) ([]*v1.Pod, error),
) (*Selection, error) {
	s := &Selection{Pods: map[pod.Key]bool{}, runtime: r, critical: map[pod.Key]bool{}}
	all, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for _, o := range all {
		pods = append(pods, s.manifestOf(o))
	}
	for _, key := range strays {
		if !slices.ContainsFunc(all, func(o pod.Observed) bool { return o.Key == key }) {
			pods = append(pods, s.manifestOf(pod.Observed{Key: key}))
		}
	}
	picked, err := pick(pods)
	if err != nil {
		return nil, err
	}
	for _, p := range picked {
		s.Pods[pod.KeyOf(p)] = true
		s.critical[pod.KeyOf(p)] = pod.Priority(p) >= pod.CriticalPriority
	}
	s.all = len(picked) == len(pods)
	s.withhold(all)
	return s, nil
}

// list returns the pods on the machine as far as they can be inspected. For a pod that hangs, the
// result has only the facts that it exists and which manifest it runs.
func (s *Selection) list(ctx context.Context) ([]pod.Observed, error) {
	all, err := s.runtime.List(ctx)
	if unknown := (*runtime.UnknownError)(nil); errors.As(err, &unknown) {
		return append(all, unknown.Pods...), nil
	}
	return all, err
}

// manifestOf returns the manifest that o runs, or a pod with only its name if no manifest was saved.
func (s *Selection) manifestOf(o pod.Observed) *v1.Pod {
	for _, uid := range o.Data {
		if p, err := s.runtime.LoadPod(uid); err == nil {
			return p
		}
	}
	p := &v1.Pod{}
	p.Namespace, p.Name = o.Key.Namespace, o.Key.Name
	return p
}

// withhold leaves out the pods that must not be changed, because a checkpoint cannot be read.
func (s *Selection) withhold(all []pod.Observed) {
	for _, o := range all {
		for _, uid := range o.Data {
			if err := s.runtime.Store().Withheld(uid); err != nil && s.Pods[o.Key] {
				delete(s.Pods, o.Key)
				s.withheld = append(s.withheld, fmt.Errorf("pod %s is not removed: %w", o.Key, err))
			}
		}
	}
}

// InOrder returns the chosen pods in the order in which they are removed: those with a critical priority after the
// others, as at a shutdown of the machine.
func (s *Selection) InOrder() []map[pod.Key]bool {
	first, last := map[pod.Key]bool{}, map[pod.Key]bool{}
	for key := range s.Pods {
		if s.critical[key] {
			last[key] = true
		} else {
			first[key] = true
		}
	}
	return slices.DeleteFunc([]map[pod.Key]bool{first, last}, func(m map[pod.Key]bool) bool { return len(m) == 0 })
}

// Err returns an error for each chosen pod that must not be changed and, if all pods were chosen, for
// each checkpoint that stays because it cannot be read.
func (s *Selection) Err() error {
	stay := errors.Join(s.withheld...)
	if !s.all {
		return stay
	}
	all := slices.Clone(s.withheld)
	for _, err := range s.runtime.Store().Errors() {
		if !errors.Is(stay, err) {
			all = append(all, fmt.Errorf("the data of an unreadable checkpoint is not removed: %w", err))
		}
	}
	return errors.Join(all...)
}

// Acquire makes this process the owner of those of the chosen pods that no other process owns. It
// leaves out the others and returns an *owner.OwnedError for each in refused. serves reports that a
// serve runs: it may have started just now and not own its pods yet.
func (s *Selection) Acquire(ctx context.Context, locks *owner.Locks, serves bool) (refused []error, err error) {
	refuse := func(err error, key pod.Key) {
		delete(s.Pods, key)
		refused = append(refused, err)
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.Pods), pod.Key.Compare) {
		err := locks.AcquireAll(ctx, key)
		switch {
		case errors.As(err, new(*owner.OwnedError)):
			refuse(err, key)
		case err != nil:
			return refused, err
		}
	}
	if !serves {
		return refused, nil
	}
	all, err := s.list(ctx)
	for _, o := range all {
		if s.Pods[o.Key] && o.Owner == owner.Serve {
			locks.Release(o.Key)
			refuse(&owner.OwnedError{Key: o.Key, Holder: "podrun serve", Serve: true}, o.Key)
		}
	}
	return refused, err
}
