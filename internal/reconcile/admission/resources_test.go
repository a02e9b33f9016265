package admission

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

// standIn are the devices of plugins.
type standIn struct {
	Devices
	offered map[v1.ResourceName]pod.DeviceOffer
}

func (s standIn) OnChange(func()) {}

func (s standIn) Offered() map[v1.ResourceName]pod.DeviceOffer { return s.offered }

// TestWhyThereIsNoDevice: who waits for a device learns what it waits for: a plugin, its return, or nothing at all.
func TestWhyThereIsNoDevice(t *testing.T) {
	t.Parallel()
	const gpu = v1.ResourceName("example.com/gpu")
	one := v1.ResourceList{gpu: resource.MustParse("1")}
	type offer = map[v1.ResourceName]pod.DeviceOffer
	for _, tt := range []struct {
		node      v1.ResourceList
		offered   offer
		says      string
		noPlugins bool
	}{
		{nil, nil, "this node's --node-config does not have example.com/gpu, and podrun runs without device plugins (serve --plugins)", true},
		{nil, offer{}, "neither this node's --node-config nor a device plugin (--plugins) has example.com/gpu", false},
		{
			v1.ResourceList{v1.ResourceCPU: one[gpu], "example.com/fpga": one[gpu]}, offer{"example.com/gup": {Usable: 1}, "example.org/other": {}},
			"neither this node's --node-config nor a device plugin (--plugins) has example.com/gpu; did you mean example.com/gup?", false,
		},
		{
			v1.ResourceList{"example.com/gpus": one[gpu]}, nil, "this node's --node-config does not have example.com/gpu, and podrun runs " +
				"without device plugins (serve --plugins); did you mean example.com/gpus?", true,
		},
		{nil, offer{gpu: {Usable: 1, Unhealthy: 2, Lost: time.Unix(0, 0).UTC()}}, "the device plugin of example.com/gpu is not connected since 1970-01-01T00:00:00Z", false},
		{nil, offer{gpu: {Usable: 1, Unhealthy: 2}}, "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1; unhealthy: 2", false},
		{one, nil, "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1", true},
	} {
		m := NewResources(tt.node, standIn{offered: tt.offered}).machine(one)
		m.Used = one
		lack := m.Lack(one)
		if lack == nil || lack.Reason != "OutOfexample.com/gpu" || lack.Message != tt.says || m.NoPlugins != tt.noPlugins {
			t.Errorf("%v, %v: %+v\nwant %s", tt.node, tt.offered, lack, tt.says)
		}
	}
}

// waiter is woken without an effect.
type waiter struct{}

func (waiter) Notify() {}

// TestWhoHasIt: who waits for a resource learns which pods have it, first those with most of it.
func TestWhoHasIt(t *testing.T) {
	t.Parallel()
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	r := NewResources(list("4", "8Gi"), nil)
	r.Hold(pod.Key{Namespace: "d", Name: "small"}, list("1", "1Gi"))
	r.Hold(pod.Key{Namespace: "d", Name: "big"}, list("2", "0"))
	r.Hold(pod.Key{Namespace: "d", Name: "also-small"}, list("1", "2Gi"))
	asked := list("1", "7Gi")
	m := r.Machine(pod.Key{Namespace: "d", Name: "new"}, waiter{}, asked, false)
	want := map[v1.ResourceName]string{
		v1.ResourceCPU: "d/big, d/also-small, d/small", v1.ResourceMemory: "d/also-small, d/small",
	}
	if !maps.Equal(m.Holders, want) {
		t.Errorf("%q, want %q", m.Holders, want)
	}
	if lack := m.Lack(asked); lack == nil || !strings.HasSuffix(lack.Message, "; in use by d/big, d/also-small, d/small") {
		t.Errorf("%+v", lack)
	}
	delete(asked, v1.ResourceCPU)
	if m := r.Machine(pod.Key{Name: "new"}, waiter{}, asked, false); len(m.Holders) != 1 {
		t.Errorf("of what is not requested: %v", m.Holders)
	}
	for i := range maxHolders {
		r.Hold(pod.Key{Namespace: "d", Name: fmt.Sprint(i)}, list("1", "0"))
	}
	m = r.Machine(pod.Key{Name: "new"}, waiter{}, list("1", "0"), false)
	if got, want := m.Holders[v1.ResourceCPU], "d/big, d/0, d/1, d/2, d/3, 3 more"; got != want {
		t.Errorf("of many: %s, want %s", got, want)
	}
}

// TestKept: who starts again with what it had comes before all others, but waits for nobody like it, also when there is
// less than before.
func TestKept(t *testing.T) {
	t.Parallel()
	const gpu = v1.ResourceName("example.com/gpu")
	n := func(n string) v1.ResourceList { return v1.ResourceList{gpu: resource.MustParse(n)} }
	offered := map[v1.ResourceName]pod.DeviceOffer{gpu: {Usable: 2}}
	r := NewResources(nil, standIn{offered: offered})
	a, b, c := pod.Key{Name: "a"}, pod.Key{Name: "b"}, pod.Key{Name: "c"}
	admits := func(key pod.Key, requests string, want bool) {
		t.Helper()
		if got := r.Admit(key, n(requests)); got != want {
			t.Errorf("%s with %s: %v", key.Name, requests, got)
		}
	}
	admits(a, "1", true)
	admits(b, "1", true)
	admits(c, "1", false)
	if r.Keep(c, n("1")) || r.Keep(a, n("2")) || r.Keep(a, v1.ResourceList{"example.com/other": resource.MustParse("1")}) {
		t.Error("kept what it had not")
	}
	if !r.Keep(a, n("1")) || !r.Keep(b, n("1")) {
		t.Error("not kept")
	}
	admits(c, "1", false)
	offered[gpu] = pod.DeviceOffer{} // the plugin is away
	admits(a, "1", false)
	offered[gpu] = pod.DeviceOffer{Usable: 1} // and has less when it is back
	admits(c, "1", false)
	admits(b, "1", true)
	admits(a, "1", false)
	r.Release(b)
	admits(c, "1", false)
	admits(a, "1", true)
	r.Release(a)
	admits(c, "1", true)
}
