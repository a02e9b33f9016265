package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// allocation is what a sandbox has, as it stands in its file.
type allocation struct {
	// Devices are the pod's devices by resource, in the order in which share divides them.
	Devices map[v1.ResourceName][]string `json:"devices"`
	// Answers are what plugins said to the devices of each container. Each is asked once.
	Answers map[string]map[v1.ResourceName]*answer `json:"answers,omitempty"`
}

// answer is a plugin's answer in JSON, by the rules of protobuf.
type answer struct {
	*v1beta1.ContainerAllocateResponse
}

// MarshalJSON implements json.Marshaler.
func (a answer) MarshalJSON() ([]byte, error) { return protojson.Marshal(a.ContainerAllocateResponse) }

// UnmarshalJSON implements json.Unmarshaler.
func (a *answer) UnmarshalJSON(text []byte) error {
	a.ContainerAllocateResponse = &v1beta1.ContainerAllocateResponse{}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, a.ContainerAllocateResponse)
}

// decode reads an allocation. Those of former versions of podrun are a map of the devices alone.
func decode(text []byte) (allocation, error) {
	var a allocation
	if err := json.Unmarshal(text, &a); err != nil {
		return allocation{}, err
	}
	if a.Devices != nil {
		return a, nil
	}
	err := json.Unmarshal(text, &a.Devices)
	return a, err
}

// write saves what the sandbox has.
func (d *Devices) write(id string, has allocation) error {
	text, err := json.Marshal(has)
	if err != nil {
		return err
	}
	return sys.WriteFile(filepath.Join(d.o.Dirs.SandboxFiles().Devices(), id), text, 0o600)
}

// sweep returns the allocations of all sandboxes, and removes those of sandboxes that are gone. The one with
// the ID is there, or will be. The caller holds the lock.
func (d *Devices) sweep(id string) (map[string]allocation, error) {
	present, err := d.o.Present()
	if err != nil {
		return nil, err
	}
	dir := d.o.Dirs.SandboxFiles().Devices()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[string]allocation{}
	for _, e := range entries {
		if !present[e.Name()] && e.Name() != id { // the sandbox's removal was interrupted
			if err := d.Release(e.Name()); err != nil {
				return nil, err
			}
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if of, err := decode(text); err == nil { // else it was torn by a power cut
			all[e.Name()] = of
		}
	}
	return all, nil
}

// Held returns the devices by sandbox and resource, without those of sandboxes whose file cannot be read now.
func (d *Devices) Held() map[string]map[v1.ResourceName][]string {
	dir := d.o.Dirs.SandboxFiles().Devices()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := map[string]map[v1.ResourceName][]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		if of, err := decode(text); err == nil {
			out[e.Name()] = of.Devices
		}
	}
	return out
}

// prefer asks plugins which of the free devices the pod's containers should get, one after another.
func (d *Devices) prefer(
	ctx context.Context, p *v1.Pod, free map[v1.ResourceName][]string,
) map[v1.ResourceName][]string {
	chosen := map[v1.ResourceName][]string{}
	if d.o.Plugins == nil {
		return chosen
	}
	divide(p, func(_ *v1.Container, name v1.ResourceName, from, to int) {
		had := chosen[name]
		if _, named := d.o.Named[name]; named || to <= len(had) || len(free[name]) < to {
			return
		}
		kept, must := had[:min(from, len(had))], had[min(from, len(had)):]
		left := slices.DeleteFunc(slices.Clone(free[name]), func(one string) bool { return slices.Contains(kept, one) })
		for _, one := range d.o.Plugins.Prefer(ctx, name, left, must, to-from) {
			if len(chosen[name]) < to && slices.Contains(left, one) && !slices.Contains(chosen[name], one) {
				chosen[name] = append(chosen[name], one)
			}
		}
		chosen[name] = first(to, chosen[name], free[name])
	})
	return chosen
}

// ask asks plugins for the answers that has lacks, and reports whether there were such.
func (d *Devices) ask(ctx context.Context, p *v1.Pod, has *allocation) (asked bool, err error) {
	for _, c := range pod.AllContainers(p) {
		part := share(p, c.Name, has.Devices)
		for _, name := range slices.Sorted(maps.Keys(part)) {
			if _, named := d.o.Named[name]; named || has.Answers[c.Name][name] != nil {
				continue
			}
			if d.o.Plugins == nil {
				continue // a device that the node configuration named when the pod got it
			}
			got, err := d.o.Plugins.Allocate(ctx, name, part[name])
			if err != nil {
				return asked, fmt.Errorf("container %s: %w", c.Name, err)
			}
			if has.Answers == nil {
				has.Answers = map[string]map[v1.ResourceName]*answer{}
			}
			if has.Answers[c.Name] == nil {
				has.Answers[c.Name] = map[v1.ResourceName]*answer{}
			}
			has.Answers[c.Name][name] = &answer{got}
			asked = true
		}
	}
	return asked, nil
}
