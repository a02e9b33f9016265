// Package device allocates the devices that the node configuration names (names of the Container
// Device Interface, CDI) to pods. An allocation lasts as long as the pod's sandbox, in a file per
// sandbox. The package does not put devices into containers, and does not admit pods: the planner
// makes a pod wait until there are enough devices.
//
// Start reading at Devices.Of.
package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// Options configure Devices.
type Options struct {
	Dirs layout.Dirs
	// Named are the names of the devices by the resource name that pods request them by. They are
	// CDI names: vendor/class=name.
	Named map[v1.ResourceName][]string
	// Present returns the IDs of the existing sandboxes. A device that another ID has is free.
	Present func() (map[string]bool, error)
}

// Devices allocates a machine's devices to sandboxes, together with other processes of the same run
// directory. Its methods may be called concurrently.
type Devices struct{ o Options }

// New returns Devices. It changes nothing yet.
func New(o Options) *Devices { return &Devices{o: o} }

// Of returns the devices of a container of p, whose sandbox has the ID. The first call for a
// sandbox allocates all devices of the pod. It is an error if too few are free; a later call may
// succeed.
func (d *Devices) Of(id string, p *v1.Pod, container string) ([]string, error) {
	wanted := wants(p)
	if len(wanted) == 0 {
		return nil, nil
	}
	has, err := d.acquire(id, wanted)
	if err != nil {
		return nil, fmt.Errorf("taking devices: %w", err)
	}
	return share(p, container, has), nil
}

// Release frees the devices of the sandbox. It is no error if it has none. If Release is never
// called, a later Of frees the devices because the sandbox does not exist any more.
func (d *Devices) Release(id string) error {
	err := os.Remove(filepath.Join(d.o.Dirs.SandboxFiles().Devices(), id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// acquire returns the devices of the sandbox, and allocates them if it does not have enough.
func (d *Devices) acquire(id string, wanted map[v1.ResourceName]int) (map[v1.ResourceName][]string, error) {
	dir := d.o.Dirs.SandboxFiles().Devices()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := sys.LockDir(dir, 0o700)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	present, err := d.o.Present()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	has := map[v1.ResourceName][]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		var of map[v1.ResourceName][]string
		if !present[e.Name()] && e.Name() != id { // the sandbox's removal was interrupted
			if err := d.Release(e.Name()); err != nil {
				return nil, err
			}
			continue
		}
		if json.Unmarshal(text, &of) != nil {
			continue // truncated by a power cut
		}
		if e.Name() == id {
			has = of
			continue
		}
		for _, names := range of {
			for _, name := range names {
				taken[name] = true
			}
		}
	}
	if enough(has, wanted) {
		return has, nil
	}
	if has, err = choose(d.o.Named, wanted, taken); err != nil {
		return nil, err
	}
	text, err := json.Marshal(has)
	if err != nil {
		return nil, err
	}
	return has, sys.WriteFile(filepath.Join(dir, id), text, 0o600)
}

func enough(has map[v1.ResourceName][]string, wanted map[v1.ResourceName]int) bool {
	for name, number := range wanted {
		if len(has[name]) < number {
			return false
		}
	}
	return true
}

// choose returns the first free devices of each name.
func choose(
	named map[v1.ResourceName][]string, wanted map[v1.ResourceName]int, taken map[string]bool,
) (map[v1.ResourceName][]string, error) {
	out := map[v1.ResourceName][]string{}
	for name, number := range wanted {
		all, known := named[name]
		if !known {
			return nil, fmt.Errorf("%s is not among the devices of this node's --node-config", name)
		}
		free := slices.DeleteFunc(slices.Clone(all), func(device string) bool { return taken[device] })
		if len(free) < number {
			return nil, fmt.Errorf("%s: the pod asks for %d, and %d of %d are free", name, number, len(free), len(all))
		}
		out[name] = free[:number]
	}
	return out, nil
}
