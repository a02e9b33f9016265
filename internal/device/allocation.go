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
	// Plugins are the resources that are a plugin's. Devices of the others are CDI names.
	Plugins map[v1.ResourceName]ofPlugin `json:"plugins,omitempty"`
}

// ofPlugin is what a plugin said to the devices of its resource.
type ofPlugin struct {
	// PreStart: the plugin wants to be asked before each start of a container.
	PreStart bool `json:"preStart,omitempty"`
	// Answers are what each container needs to use its devices. The plugin is asked once.
	Answers map[string]*answer `json:"answers,omitempty"`
	// NUMA are the NUMA nodes of the devices, by their IDs, as the plugin said when they were allocated.
	NUMA map[string][]int64 `json:"numa,omitempty"`
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

// write saves what the sandbox has. The caller holds the lock: a file that is being written is no sandbox's.
func (d *Devices) write(id string, has allocation) error {
	text, err := json.Marshal(has)
	if err != nil {
		return err
	}
	return sys.ReplaceFile(filepath.Join(d.o.Dirs.SandboxFiles().Devices(), id), text, 0o600)
}

// read returns what the sandbox has; nothing if that is not known.
func (d *Devices) read(id string) allocation {
	text, err := os.ReadFile(filepath.Join(d.o.Dirs.SandboxFiles().Devices(), id))
	if err != nil {
		return allocation{}
	}
	has, err := decode(text)
	if err != nil {
		return allocation{}
	}
	return has
}

// complete saves the answers to what the sandbox has, unless it has been released meanwhile.
func (d *Devices) complete(id string, has allocation) error {
	dir := d.o.Dirs.SandboxFiles().Devices()
	lock, err := sys.LockDir(dir, 0o700)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if _, err := os.Stat(filepath.Join(dir, id)); err != nil {
		return fmt.Errorf("the devices have been released: %w", err)
	}
	return d.write(id, has)
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
		if !present(e.Name()) && e.Name() != id { // the sandbox's removal was interrupted
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
	entries, err := os.ReadDir(d.o.Dirs.SandboxFiles().Devices())
	if err != nil {
		return nil
	}
	out := map[string]map[v1.ResourceName][]string{}
	for _, e := range entries {
		if has := d.read(e.Name()); len(has.Devices) > 0 {
			out[e.Name()] = has.Devices
		}
	}
	return out
}

// prefer returns which of the free devices the pod's containers should get, one after another: CPUs by the
// topology, with those that the pod has, and others by their plugins. A plugin that does not answer once is not
// asked again.
func (d *Devices) prefer(
	ctx context.Context, p *v1.Pod, cpus []string, free map[v1.ResourceName][]string,
) map[v1.ResourceName][]string {
	kept := slices.DeleteFunc(slices.Clone(cpus), func(one string) bool { // those that are not reserved by now
		return !slices.Contains(free[v1.ResourceCPU], one)
	})
	chosen := map[v1.ResourceName][]string{v1.ResourceCPU: kept}
	silent := map[v1.ResourceName]bool{}
	divide(p, d.o.CPUs.Static, func(_ *v1.Container, name v1.ResourceName, from, to int) {
		had := chosen[name]
		_, named := d.o.Named[name]
		isCPU := name == v1.ResourceCPU
		if named || silent[name] || to <= len(had) || len(free[name]) < to || !isCPU && d.o.Plugins == nil {
			return
		}
		kept, must := had[:min(from, len(had))], had[min(from, len(had)):]
		left := slices.DeleteFunc(slices.Clone(free[name]), func(one string) bool { return slices.Contains(kept, one) })
		var preferred []string
		if isCPU {
			preferred = d.o.CPUs.prefer(left, must, to-from)
		} else {
			var err error
			preferred, err = d.o.Plugins.Prefer(ctx, name, left, must, to-from)
			silent[name] = err != nil
		}
		for _, one := range preferred {
			if len(chosen[name]) < to && slices.Contains(left, one) && !slices.Contains(chosen[name], one) {
				chosen[name] = append(chosen[name], one)
			}
		}
		chosen[name] = first(to, chosen[name], free[name])
	})
	return chosen
}

// ask asks plugins for the answers that has lacks, and reports whether there were such.
func (d *Devices) ask(ctx context.Context, p *v1.Pod, has allocation) (asked bool, err error) {
	for _, c := range pod.AllContainers(p) {
		part := share(p, c.Name, has.Devices)
		for _, name := range slices.Sorted(maps.Keys(part)) {
			of, plugged := has.Plugins[name]
			if !plugged || of.Answers[c.Name] != nil {
				continue
			}
			if d.o.Plugins == nil {
				return asked, fmt.Errorf("%s is a plugin's, and podrun runs without --plugins", name)
			}
			got, preStart, err := d.o.Plugins.Allocate(ctx, name, part[name])
			if err != nil {
				return asked, fmt.Errorf("container %s: %w", c.Name, err)
			}
			if of.Answers == nil {
				of.Answers = map[string]*answer{}
			}
			of.PreStart, of.Answers[c.Name] = preStart, &answer{got}
			has.Plugins[name], asked = of, true
		}
	}
	return asked, nil
}
