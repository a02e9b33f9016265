// Package device gives pods the devices that this node's configuration names: which of them a pod has is kept
// as long as its sandbox is there. It does not know how a device gets into a container, and judges no pod's
// place; the planner waits until there are enough.
package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

// Options are what Devices need.
type Options struct {
	Dirs layout.Dirs
	// Named are the devices, by what pods ask for them as: names of CDI's, vendor/class=name.
	Named map[v1.ResourceName][]string
	// Present are the ids of the sandboxes that are there; what others have is free.
	Present func() (map[string]bool, error)
}

// Devices hands out a machine's devices, together with other processes of the same run directory.
type Devices struct{ o Options }

// New returns the devices; it touches nothing yet.
func New(o Options) *Devices { return &Devices{o: o} }

// Of returns the devices of a container of p, whose sandbox has the id. The pod's are taken, all of them, when
// it first asks; while others have them it is an error, which may be gone when asked again.
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

// Release frees what the sandbox has; nothing is success. Without it the next who looks for a device finds the
// sandbox gone.
func (d *Devices) Release(id string) error {
	err := os.Remove(filepath.Join(d.o.Dirs.Devices(), id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// acquire returns what the sandbox has, after making sure that it is enough.
func (d *Devices) acquire(id string, wanted map[v1.ResourceName]int) (map[v1.ResourceName][]string, error) {
	dir := d.o.Dirs.Devices()
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
		if !present[e.Name()] && e.Name() != id { // its end was cut off
			if err := d.Release(e.Name()); err != nil {
				return nil, err
			}
			continue
		}
		if json.Unmarshal(text, &of) != nil {
			continue // torn by a power cut
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

// choose picks the first that are free.
func choose(named map[v1.ResourceName][]string, wanted map[v1.ResourceName]int, taken map[string]bool) (map[v1.ResourceName][]string, error) {
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
