// Package device allocates a machine's devices to pods: those that the node configuration names (names of the
// Container Device Interface, CDI), those of device plugins, with which package plugins is in contact, and CPUs. An
// allocation lasts as long as the pod's sandbox, in a file per sandbox. The package does not put devices into
// containers, and does not admit pods: the planner makes a pod wait until there are enough devices.
//
// Start reading at Devices.Acquire.
package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Plugged is what a plugin says of a device.
type Plugged struct {
	Healthy bool `json:"healthy"`
	// NUMA are the NUMA nodes that the device is near to; nil if that is not known.
	NUMA []int64 `json:"numa,omitempty"`
}

// Equal reports that two plugins say the same.
func (p Plugged) Equal(q Plugged) bool { return p.Healthy == q.Healthy && slices.Equal(p.NUMA, q.NUMA) }

// Plugins are the device plugins of the machine.
type Plugins interface {
	// Devices returns the devices of each resource that a plugin has registered, by their IDs.
	Devices() map[v1.ResourceName]map[string]Plugged
	// Lost returns when the connection to the plugin of a resource ended, for those to which there is none.
	Lost() map[v1.ResourceName]time.Time
	// Prefer returns which of the free devices the plugin would give to a container that gets so many, with
	// those that it must have among them. There may be fewer, or none. An error is that the plugin does not
	// answer.
	Prefer(ctx context.Context, name v1.ResourceName, free, must []string, number int) ([]string, error)
	// Allocate returns what a container needs to use the devices, and whether the plugin wants to prepare them
	// before each of its starts.
	Allocate(ctx context.Context, name v1.ResourceName, ids []string) (
		answer *v1beta1.ContainerAllocateResponse, preStart bool, err error)
	// OnChange makes f be called after Devices has changed. f does not block.
	OnChange(f func())
	// PreStart lets the plugin prepare the devices for the start of a container, if it wants that now; was is
	// whether it wanted it when it allocated them.
	PreStart(ctx context.Context, name v1.ResourceName, ids []string, was bool) error
}

// Options configure Devices.
type Options struct {
	Dirs layout.Dirs
	// Named are the names of the devices by the resource name that pods request them by. They are
	// CDI names: vendor/class=name.
	Named map[v1.ResourceName][]string
	// Plugins may be nil.
	Plugins Plugins
	CPUs    CPUs
	// Present returns a function that reports whether a sandbox with an ID may exist. A device that
	// another ID has is free.
	Present func() (func(id string) bool, error)
}

// Devices allocates a machine's devices to sandboxes, together with other processes of the same run
// directory. Its methods may be called concurrently.
type Devices struct {
	o       Options
	allCPUs string // in the kernel's format

	mu sync.Mutex
	// changed are called after the shared CPUs have changed.
	changed []func()
}

// New returns Devices. It changes nothing yet.
func New(o Options) *Devices { return &Devices{o: o, allCPUs: o.CPUs.All.String()} }

// Given are the devices of a container.
type Given struct {
	// CDI are the names of devices of the node configuration.
	CDI []string
	// IDs are the devices of plugins, by resource.
	IDs map[v1.ResourceName][]string
	// PreStart are the resources whose plugin wanted to prepare them before each start when it allocated them.
	PreStart map[v1.ResourceName]bool
	// Answers are what the plugins said to them, in the order of the resources' names.
	Answers []*v1beta1.ContainerAllocateResponse
}

// Acquire allocates all devices of p, whose sandbox has the ID, unless it has them. It is an error if too few
// are free, or if a plugin does not allocate them; nothing is allocated then, and a later call may succeed.
func (d *Devices) Acquire(ctx context.Context, id string, p *v1.Pod) error {
	_, err := d.acquire(ctx, id, p)
	return err
}

// Of returns the devices of a container of p, whose sandbox has the ID, and allocates all devices of the pod if
// it has none yet.
func (d *Devices) Of(ctx context.Context, id string, p *v1.Pod, container string) (Given, error) {
	has, err := d.acquire(ctx, id, p)
	if err != nil {
		return Given{}, err
	}
	return given(p, container, has), nil
}

// given returns the container's part of an allocation.
func given(p *v1.Pod, container string, has allocation) Given {
	out := Given{IDs: map[v1.ResourceName][]string{}, PreStart: map[v1.ResourceName]bool{}}
	part := share(p, container, has.Devices)
	for _, name := range slices.Sorted(maps.Keys(part)) {
		of, plugged := has.Plugins[name]
		if name == v1.ResourceCPU {
			continue
		}
		if !plugged {
			out.CDI = append(out.CDI, part[name]...)
			continue
		}
		out.IDs[name], out.PreStart[name] = part[name], of.PreStart
		if a := of.Answers[container]; a != nil {
			out.Answers = append(out.Answers, a.ContainerAllocateResponse)
		}
	}
	return out
}

// PreStart lets the plugins prepare a container's devices for its start.
func (d *Devices) PreStart(ctx context.Context, g Given) error {
	for _, name := range slices.Sorted(maps.Keys(g.IDs)) {
		var err error
		if d.o.Plugins != nil {
			err = d.o.Plugins.PreStart(ctx, name, g.IDs[name], g.PreStart[name])
		} else if g.PreStart[name] {
			err = fmt.Errorf("%s is a plugin's, and podrun runs without --plugins", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Release frees the devices of the sandbox. It is no error if it has none. If Release is never
// called, a later Acquire frees the devices because the sandbox does not exist any more.
func (d *Devices) Release(id string) error {
	if d.o.CPUs.Static && len(d.read(id).Devices[v1.ResourceCPU]) > 0 {
		defer d.notify()
	}
	err := os.Remove(filepath.Join(d.o.Dirs.SandboxFiles().Devices(), id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// notify reports that the shared CPUs have changed.
func (d *Devices) notify() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.changed {
		f()
	}
}

// acquire returns the allocation of the sandbox, and completes it if it is not whole. If that fails, what it
// has taken is free again; what a container may use already stays.
func (d *Devices) acquire(ctx context.Context, id string, p *v1.Pod) (allocation, error) {
	static := d.o.CPUs.Static
	if len(wants(p, static)) == 0 && (!static || len(d.read(id).Devices) == 0) {
		return allocation{}, nil // most pods
	}
	has, fresh, err := d.reserve(ctx, id, p)
	if err != nil {
		return has, fmt.Errorf("taking devices: %w", err)
	}
	asked, err := d.ask(ctx, p, has)
	if err == nil && asked {
		err = d.complete(id, has)
	}
	if err != nil && fresh {
		err = errors.Join(err, d.Release(id))
	}
	return has, err
}

// reserve returns the devices of the sandbox, and takes those that it lacks. It is fresh if it had none before.
// The lock is not held while a plugin is asked, for it may hang.
func (d *Devices) reserve(ctx context.Context, id string, p *v1.Pod) (has allocation, fresh bool, err error) {
	wanted := wants(p, d.o.CPUs.Static)
	has, free, err := d.free(id)
	if err != nil || isEnough(has.Devices, wanted, d.o.CPUs) {
		return has, false, err
	}
	preferred := d.prefer(ctx, p, has.Devices[v1.ResourceCPU], free)
	lock, err := sys.LockDir(d.o.Dirs.SandboxFiles().Devices(), 0o700)
	if err != nil {
		return has, false, err
	}
	defer lock.Unlock()
	if has, free, err = d.unlocked(id); err != nil {
		return has, false, err
	}
	if fresh = len(has.Devices) == 0; fresh {
		has.Devices = map[v1.ResourceName][]string{}
	}
	if has.Plugins == nil {
		has.Plugins = map[v1.ResourceName]ofPlugin{}
	}
	for name, number := range wanted {
		if len(has.Devices[name]) >= number && name != v1.ResourceCPU {
			continue
		}
		all, known := free[name]
		if !known {
			return has, false, fmt.Errorf("neither this node's --node-config nor a device plugin has %s", name)
		}
		if len(all) < number {
			return has, false, fmt.Errorf("%s: the pod asks for %d, and %d are free", name, number, len(all))
		}
		has.Devices[name] = first(number, preferred[name], all)
		if _, named := d.o.Named[name]; !named && name != v1.ResourceCPU {
			has.Plugins[name] = ofPlugin{NUMA: numaOf(d.plugged()[name], has.Devices[name])}
		}
	}
	if d.o.CPUs.Static {
		if wanted[v1.ResourceCPU] == 0 {
			delete(has.Devices, v1.ResourceCPU) // it has been made smaller
		}
		defer d.notify()
	}
	return has, fresh, d.write(id, has)
}

// free returns what the sandbox has, and the devices that no other one has.
func (d *Devices) free(id string) (allocation, map[v1.ResourceName][]string, error) {
	dir := d.o.Dirs.SandboxFiles().Devices()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return allocation{}, nil, err
	}
	lock, err := sys.LockDir(dir, 0o700)
	if err != nil {
		return allocation{}, nil, err
	}
	defer lock.Unlock()
	return d.unlocked(id)
}

// deviceOf is a device of a plugin's resource, or a CDI device, whose name says all: its resource is "".
type deviceOf struct {
	name v1.ResourceName
	id   string
}

// unlocked is free for those who hold the lock.
func (d *Devices) unlocked(id string) (allocation, map[v1.ResourceName][]string, error) {
	var has allocation
	all, err := d.sweep(id)
	if err != nil {
		return has, nil, err
	}
	taken := map[deviceOf]bool{}
	for other, of := range all {
		if other == id {
			has = of
			continue
		}
		for name, ids := range of.Devices {
			if _, plugged := of.Plugins[name]; !plugged {
				name = ""
			}
			for _, one := range ids {
				taken[deviceOf{name, one}] = true
			}
		}
	}
	free := map[v1.ResourceName][]string{}
	without := func(of v1.ResourceName, ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(one string) bool { return taken[deviceOf{of, one}] })
	}
	for name, plugged := range d.plugged() {
		var healthy []string
		for _, one := range slices.Sorted(maps.Keys(plugged)) {
			if plugged[one].Healthy {
				healthy = append(healthy, one)
			}
		}
		free[name] = without(name, healthy)
	}
	for name, named := range d.o.Named {
		free[name] = without("", named)
	}
	if d.o.CPUs.Static {
		free[v1.ResourceCPU] = without("", idsOf(d.o.CPUs.Allocatable()))
	}
	return has, free, nil
}

// plugged returns the devices of plugins; nil without plugins.
func (d *Devices) plugged() map[v1.ResourceName]map[string]Plugged {
	if d.o.Plugins == nil {
		return nil
	}
	return d.o.Plugins.Devices()
}

// first returns so many of all, the preferred ones first.
func first(number int, preferred, all []string) []string {
	out, left := make([]string, 0, number), map[string]bool{}
	for _, one := range all {
		left[one] = true
	}
	for _, from := range [][]string{preferred, all} {
		for _, one := range from {
			if len(out) < number && left[one] {
				out = append(out, one)
				delete(left, one)
			}
		}
	}
	return out
}

// isEnough reports that a pod has what it wants. If CPUs may be a container's own, it has not more of them than it
// wants, for others need them, and none that is reserved or gone by now.
func isEnough(has map[v1.ResourceName][]string, wanted map[v1.ResourceName]int, c CPUs) bool {
	for name, number := range wanted {
		if len(has[name]) < number {
			return false
		}
	}
	own := has[v1.ResourceCPU]
	return !c.Static || len(own) == wanted[v1.ResourceCPU] && CPUSet(own).IsSubsetOf(c.Allocatable())
}

// OnChange makes f be called after Offered or the shared CPUs have changed. f does not block.
func (d *Devices) OnChange(f func()) {
	d.mu.Lock()
	d.changed = append(d.changed, f)
	d.mu.Unlock()
	if d.o.Plugins != nil {
		d.o.Plugins.OnChange(f)
	}
}

// Offered returns what the machine's plugins offer to pods; the node configuration's devices are not among
// them. It is nil without plugins.
func (d *Devices) Offered() map[v1.ResourceName]pod.DeviceOffer {
	if d.o.Plugins == nil {
		return nil
	}
	all, lost := d.plugged(), d.o.Plugins.Lost()
	held := map[v1.ResourceName]map[string]bool{}
	for _, of := range d.Held() {
		for name, ids := range of {
			if held[name] == nil {
				held[name] = map[string]bool{}
			}
			for _, one := range ids {
				held[name][one] = true
			}
		}
	}
	out := map[v1.ResourceName]pod.DeviceOffer{}
	for name, plugged := range all {
		offer := pod.DeviceOffer{Lost: lost[name]}
		for _, of := range plugged {
			if !of.Healthy {
				offer.Unhealthy++
			} else {
				offer.Usable++
			}
		}
		for one := range held[name] {
			if !plugged[one].Healthy {
				offer.Usable++ // whoever has it keeps it
			}
		}
		out[name] = offer
	}
	return out
}
