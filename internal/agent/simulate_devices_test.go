package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// The machine has a device plugin. Package device is the real one; what package device/plugins does, to be in contact
// with a plugin, is done here in virtual time.

// simulatedDevice is what the plugin has registered.
const simulatedDevice = v1.ResourceName("example.com/d")

// graceOfPlugin is how long a podrun remembers a plugin that is gone.
const graceOfPlugin = 5 * time.Minute

// plugin is the device plugin, as it really is. The world's mutex guards it.
type plugin struct {
	up   bool
	lost time.Time // when it ended
	// healthy are its devices, and whether they are so.
	healthy map[string]bool
	// preStart says that it is to be called before each start of a container.
	preStart bool
	// remembered is what the last podrun has written down.
	remembered map[string]device.Plugged
	contacts   []*contact
	// has are the devices of each sandbox that was made.
	has map[string][]string
}

func newPlugin(seed uint64) plugin {
	return plugin{up: true, healthy: allHealthy(), preStart: chance(scatter(seed, "pre-start", 0), 2), has: map[string][]string{}}
}

func allHealthy() map[string]bool { return map[string]bool{"d0": true, "d1": true, "d2": true} }

// contact is what one podrun knows of the plugin. It implements device.Plugins.
type contact struct {
	p       *process
	known   map[string]device.Plugged // nil: none has registered
	changed []func()
}

// connect gives a podrun its devices. As in reality, only serve is in contact with plugins.
func (p *process) connect(o device.Options) {
	o.Dirs = p.w.dirs
	o.Present = func() (func(string) bool, error) { return connection.Present(p.store) }
	if p.command == owner.Serve {
		c := &contact{p: p}
		o.Plugins = c
		p.w.set(func() {
			c.known = maps.Clone(p.w.plugin.remembered)
			p.w.plugin.contacts = append(p.w.plugin.contacts, c)
			p.w.plugged()
		})
	}
	p.devices = device.New(o)
}

// plugged lets every podrun see, soon, how the plugin is now. The caller holds mu.
func (w *world) plugged() {
	for _, c := range w.plugin.contacts {
		if c.p.killed() {
			continue
		}
		d := w.drawn(fmt.Sprintf("%d sees the plugin", c.p.number))
		time.AfterFunc(between(d, time.Millisecond, 2*time.Second), c.update)
		if !w.plugin.up {
			time.AfterFunc(time.Until(w.plugin.lost.Add(graceOfPlugin))+between(d, time.Millisecond, 2*time.Second), c.update)
		}
	}
}

// update makes a podrun see how the plugin is.
func (c *contact) update() {
	if c.p.killed() {
		return
	}
	w := c.p.w
	w.mu.Lock()
	before := c.known
	switch {
	case w.plugin.up:
		c.known = map[string]device.Plugged{}
		for id, healthy := range w.plugin.healthy {
			c.known[id] = device.Plugged{Healthy: healthy}
		}
	case time.Since(w.plugin.lost) >= graceOfPlugin:
		c.known = nil
	default:
		c.known = maps.Clone(c.known)
		for id := range c.known {
			c.known[id] = device.Plugged{}
		}
	}
	w.plugin.remembered = c.known
	var call []func()
	if !maps.EqualFunc(before, c.known, device.Plugged.Equal) || (before == nil) != (c.known == nil) {
		call = slices.Clone(c.changed)
		w.step(fmt.Sprintf("%d sees devices %v", c.p.number, c.known))
	}
	w.mu.Unlock()
	for _, f := range call {
		f()
	}
}

// Devices implements device.Plugins.
func (c *contact) Devices() map[v1.ResourceName]map[string]device.Plugged {
	c.p.w.mu.Lock()
	defer c.p.w.mu.Unlock()
	if c.known == nil {
		return nil
	}
	return map[v1.ResourceName]map[string]device.Plugged{simulatedDevice: maps.Clone(c.known)}
}

// OnChange implements device.Plugins.
func (c *contact) OnChange(f func()) {
	c.p.w.set(func() { c.changed = append(c.changed, f) })
}

// call is a call of the plugin: it may fail before or after its effect, hang, or be the plugin's or podrun's last one.
func (c *contact) call(ctx context.Context, what string, limit time.Duration) error {
	p, w := c.p, c.p.w
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	what = fmt.Sprintf("%d plugin %s", p.number, what)
	d := w.draw(what + callers())
	wait, ends := time.Duration(d%(16<<20)), false
	var err error
	w.set(func() {
		if !w.faulty {
			return
		}
		switch f := d >> 32 % 100; {
		case f < 10:
			err = errFault
		case f < 15:
			wait += between(d, 100*time.Millisecond, 20*time.Second)
		case f < 18:
			wait += longestHang
		case f < 24:
			ends = true
		}
	})
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.dead:
		return fake.ErrCut
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
	}
	if p.killed() {
		return fake.ErrCut
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.plugin.up {
		err = errors.New("the device plugin is not there")
	}
	if p.mortal && chance(d>>24, 25) {
		defer p.kill()
		err = fake.ErrCut
	}
	w.step(fmt.Sprintf("%s -> %v, ends %v", what, err, ends))
	if ends && w.plugin.up {
		w.endPlugin()
		if chance(d>>8, 2) { // else it ends just after its answer
			err = errFault
		}
	}
	return err
}

// Prefer implements device.Plugins.
func (c *contact) Prefer(ctx context.Context, _ v1.ResourceName, free, must []string, number int) ([]string, error) {
	if err := c.call(ctx, fmt.Sprintf("Prefer %d of %v with %v", number, free, must), 5*time.Second); err != nil {
		return nil, err
	}
	all := slices.Concat(must, free)
	return all[:min(number, len(all))], nil
}

// Allocate implements device.Plugins.
func (c *contact) Allocate(ctx context.Context, _ v1.ResourceName, ids []string) (
	*v1beta1.ContainerAllocateResponse, bool, error,
) {
	if err := c.call(ctx, fmt.Sprintf("Allocate %v", ids), 30*time.Second); err != nil {
		return nil, false, err
	}
	answer := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"D": strings.Join(ids, ",")}}
	return answer, c.p.w.plugin.preStart, nil
}

// Lost implements device.Plugins.
func (c *contact) Lost() map[v1.ResourceName]time.Time { return nil }

// PreStart implements device.Plugins.
func (c *contact) PreStart(ctx context.Context, _ v1.ResourceName, ids []string, was bool) error {
	if !was {
		return nil
	}
	return c.call(ctx, fmt.Sprintf("PreStart %v", ids), 30*time.Second)
}

// acquire takes the devices of a sandbox that is to be made, as the containerd driver does.
func (p *process) acquire(ctx context.Context, q *v1.Pod, id string) error {
	if err := p.devices.Acquire(ctx, id, q); err != nil {
		return &runtime.ReasonError{Reason: runtime.ReasonAdmission, Err: err}
	}
	return nil
}

// holding takes note of the devices of a sandbox that has been made.
func (p *process) holding(id string) {
	has := p.devices.Held()[id][simulatedDevice]
	exist := p.w.engine.SandboxIDs()
	p.w.set(func() {
		if len(has) > 0 {
			p.w.plugin.has[id] = has
		}
		p.w.shared(id, exist)
	})
}

// shared reports a device that two sandboxes have. The caller holds mu.
func (w *world) shared(id string, exist []string) {
	for _, other := range exist {
		for _, one := range w.plugin.has[other] {
			if other != id && slices.Contains(w.plugin.has[id], one) {
				w.report("a device belongs to one sandbox", "%s is that of %.8s (%s) and of %.8s (%s)",
					one, id, w.keys[id], other, w.keys[other])
			}
		}
	}
}

// given returns the devices of a container that is to start, as the containerd driver does.
func (p *process) given(ctx context.Context, s runtime.Start) ([]string, error) {
	given, err := p.devices.Of(ctx, s.Sandbox.ID, s.Pod, s.Container.Name)
	if err == nil {
		err = p.devices.PreStart(ctx, given)
	}
	if err != nil {
		return nil, &runtime.ReasonError{Reason: runtime.ReasonConfig, Err: err}
	}
	for _, a := range given.Answers {
		return strings.Split(a.Envs["D"], ","), nil
	}
	return nil, nil
}

// ownDevices: a container has the devices that it asks for, those of its sandbox, and the same ones each time.
func ownDevices(w *world, i *instance) string {
	limit := i.spec.Resources.Limits[simulatedDevice]
	if len(i.devices) != int(limit.Value()) {
		return fmt.Sprintf("it asks for %d devices, and has %v", limit.Value(), i.devices)
	}
	for _, one := range i.devices {
		if !slices.Contains(w.plugin.has[i.sandbox], one) {
			return fmt.Sprintf("%s is not its sandbox's, which has %v", one, w.plugin.has[i.sandbox])
		}
		for _, o := range w.instances {
			if o.live && o.sandbox != i.sandbox && slices.Contains(o.devices, one) {
				return fmt.Sprintf("%s of %s uses %s", o.name, o.key, one)
			}
		}
	}
	for _, before := range w.ranIn(i.sandbox, i.name) {
		if !slices.Equal(before.devices, i.devices) {
			return fmt.Sprintf("it has %v, and attempt %d had %v", i.devices, before.attempt, before.devices)
		}
	}
	return ""
}

// deviceFiles returns what is on the disk of the devices of sandboxes that the process has made.
func (p *process) deviceFiles() map[string]string {
	all := map[string]string{}
	dir := p.w.dirs.SandboxFiles().Devices()
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if text, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			if _, mine := p.made.Load(e.Name()); !mine {
				continue
			}
			all[e.Name()] = string(text)
		}
	}
	return all
}

// undo takes back what a killed process did with its devices after its death.
func (p *process) undo() {
	dir := p.w.dirs.SandboxFiles().Devices()
	for id := range p.deviceFiles() {
		if _, was := p.atDeath[id]; !was {
			_ = os.Remove(filepath.Join(dir, id))
		}
	}
	for id, text := range p.atDeath {
		_ = os.WriteFile(filepath.Join(dir, id), []byte(text), 0o600)
	}
}

// endPlugin ends the plugin, which comes back by itself. The caller holds mu.
func (w *world) endPlugin() {
	w.plugin.up, w.plugin.lost = false, time.Now()
	w.step("  the device plugin ends")
	w.plugged()
	d := w.drawn("the plugin is back")
	most := 20 * time.Second
	if chance(d, 3) {
		most = 2 * graceOfPlugin
	}
	time.AfterFunc(between(d>>8, time.Second, most), func() { w.set(w.beginPlugin) })
}

// beginPlugin begins the plugin, if it is not there. The caller holds mu.
func (w *world) beginPlugin() {
	if w.plugin.up {
		return
	}
	w.plugin.up = true
	w.step("  the device plugin begins")
	w.plugged()
}

// changeDevices changes the health of a device, or takes it away, or brings another one.
func (s *simulation) changeDevices() {
	id, of := fmt.Sprintf("d%d", s.r.IntN(4)), s.r.IntN(3)
	s.w.set(func() {
		healthy, is := s.w.plugin.healthy[id]
		switch {
		case !is:
			s.w.plugin.healthy[id] = true
		case of == 0:
			delete(s.w.plugin.healthy, id)
		default:
			s.w.plugin.healthy[id] = !healthy
		}
		s.w.step(fmt.Sprintf("  the devices are %v", s.w.plugin.healthy))
		s.w.plugged()
	})
}

// pluginComesOrGoes ends the plugin, or begins it before its time.
func (s *simulation) pluginComesOrGoes() {
	s.w.set(func() {
		if s.w.plugin.up {
			s.w.endPlugin()
		} else {
			s.w.beginPlugin()
		}
	})
}

// calmDevices makes all devices healthy.
func (w *world) calmDevices() {
	w.plugin.healthy = allHealthy()
	w.beginPlugin()
	w.plugged()
}

// withoutPlugin: neither the plugin's end nor podrun's touches what runs, and what crashes runs again.
func (s *simulation) withoutPlugin() {
	if !slices.ContainsFunc(s.pods[:], func(of offer) bool { return of.pod != nil && pod.NeedsDevices(of.pod) }) {
		return
	}
	s.pass(longestHang + time.Minute) // what still follows from a fault is done
	s.await("everything is still so", s.unsettled)
	var all []*instance
	s.w.set(func() {
		for _, i := range s.w.instances {
			wanted := slices.ContainsFunc(s.pods[:], func(of offer) bool { return of.pod != nil && of.pod.Name == i.key.Name })
			always := i.pod.Spec.RestartPolicy == v1.RestartPolicyAlways
			if wanted && always && pod.NeedsDevices(i.pod) && i.live && !i.lost && i.asked.IsZero() {
				all = append(all, i)
			}
		}
	})
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b *instance) int { return strings.Compare(a.id, b.id) })
	s.note("without the device plugin")
	s.w.set(func() {
		s.w.plugin.up, s.w.plugin.lost = false, time.Now()
		s.w.plugged()
	})
	s.pass(time.Duration(s.r.Int64N(int64(2 * graceOfPlugin))))
	s.serve.kill()
	s.pass(time.Minute)
	s.w.set(func() {
		for _, i := range all {
			if !i.asked.IsZero() { // it may have ended by itself
				s.w.report("what runs is not touched by the end of the plugin", "%s %s (%.8s)", i.key, i.name, i.id)
			}
		}
	})
	// A container that ends gets the same devices again; the plugin is asked again only if it wants to be.
	at := slices.IndexFunc(all, func(i *instance) bool { return i.live && len(i.devices) > 0 && !isInit(i) })
	if at >= 0 && !s.w.plugin.preStart {
		s.w.exit(all[at], 1, "")
		s.await("a container starts again without the plugin", func() string {
			s.w.mu.Lock()
			defer s.w.mu.Unlock()
			if len(s.w.live(all[at].key, all[at].name)) == 0 {
				return fmt.Sprintf("%s of %s does not live", all[at].name, all[at].key)
			}
			return ""
		})
	}
	s.w.set(s.w.beginPlugin)
}

// waitsRightly reports that a pod waits for devices that others have, and says so. The caller holds mu.
func (w *world) waitsRightly(key pod.Key, status *v1.Pod, exist []string) bool {
	if status.Status.Reason != "OutOf"+string(simulatedDevice) || len(w.live(key, "")) > 0 {
		return false
	}
	free := len(w.plugin.healthy)
	for _, id := range exist {
		for _, one := range w.plugin.has[id] {
			if w.plugin.healthy[one] && w.keys[id] != key {
				free--
			}
		}
	}
	return devicesOf(status) > free
}

// devicesOf returns how many devices a pod needs at once. Containers after an init container use its devices, but not a
// sidecar's.
func devicesOf(p *v1.Pod) int {
	kept, most := 0, 0
	for _, c := range p.Spec.InitContainers {
		limit := c.Resources.Limits[simulatedDevice]
		most = max(most, kept+int(limit.Value()))
		if c.RestartPolicy != nil {
			kept += int(limit.Value())
		}
	}
	for _, c := range p.Spec.Containers {
		limit := c.Resources.Limits[simulatedDevice]
		kept += int(limit.Value())
	}
	return max(kept, most)
}

// askFor makes a container ask for devices.
func askFor(c *v1.Container, number int) {
	list := v1.ResourceList{simulatedDevice: *resource.NewQuantity(int64(number), resource.DecimalSI)}
	c.Resources = v1.ResourceRequirements{Limits: list, Requests: list}
}
