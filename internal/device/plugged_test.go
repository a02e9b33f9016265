package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// standIn are plugins of one resource, log.
type standIn struct {
	devices map[string]Plugged
	lost    time.Time
	prefers []string
	refuse  error
	// preStart is whether it is to be asked before each start.
	preStart bool
	during   func() // while it allocates
	calls    []string
}

func (s *standIn) Devices() map[v1.ResourceName]map[string]Plugged {
	return map[v1.ResourceName]map[string]Plugged{log: s.devices}
}

func (s *standIn) OnChange(func()) {}

func (s *standIn) Lost() map[v1.ResourceName]time.Time {
	return map[v1.ResourceName]time.Time{log: s.lost}
}

func (s *standIn) Prefer(_ context.Context, _ v1.ResourceName, free, must []string, number int) ([]string, error) {
	s.calls = append(s.calls, fmt.Sprintf("prefer %d of %v with %v", number, free, must))
	return s.prefers, nil
}

func (s *standIn) Allocate(_ context.Context, _ v1.ResourceName, ids []string) (*v1beta1.ContainerAllocateResponse, bool, error) {
	s.calls = append(s.calls, fmt.Sprintf("allocate %v", ids))
	if s.during != nil {
		s.during()
	}
	return &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"IDS": strings.Join(ids, " ")}}, s.preStart, s.refuse
}

func (s *standIn) PreStart(_ context.Context, _ v1.ResourceName, ids []string, was bool) error {
	s.calls = append(s.calls, fmt.Sprintf("start %v %v", ids, was))
	return s.refuse
}

// healthy are devices with these IDs; those with a minus sign are unhealthy.
func healthy(ids ...string) map[string]Plugged {
	out := map[string]Plugged{}
	for _, id := range ids {
		out[strings.TrimPrefix(id, "-")] = Plugged{Healthy: !strings.HasPrefix(id, "-")}
	}
	return out
}

func TestPlugged(t *testing.T) {
	t.Parallel()
	present := map[string]bool{"s1": true, "s2": true, "s3": true}
	plugins := &standIn{devices: healthy("a", "b", "c", "d", "-e"), prefers: []string{"c", "nosuch", "e"}, preStart: true}
	o := Options{
		Dirs: layout.Dirs{Run: t.TempDir()}, Plugins: plugins, Present: func() (func(string) bool, error) { return in(present), nil },
	}
	d := New(o)
	sidecar := asking("sidecar", "1")
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{sidecar, asking("init", "2")},
		Containers:     []v1.Container{asking("one", "1"), asking("none", ""), asking("two", "1")},
	}}
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(plugins.calls, want) {
			t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(plugins.calls, "\n"), strings.Join(want, "\n"))
		}
		plugins.calls = nil
	}
	if err := d.Acquire(t.Context(), "s1", p); err != nil {
		t.Fatal(err)
	}
	// The sidecar keeps what it prefers; the containers get what the init container had.
	expect("prefer 1 of [a b c d] with []", "prefer 2 of [a b d] with []",
		"allocate [c]", "allocate [a b]", "allocate [a]", "allocate [b]")
	offered := func(want pod.DeviceOffer) {
		t.Helper()
		if got := d.Offered()[log]; got != want {
			t.Errorf("offered: %+v, want %+v", got, want)
		}
	}
	offered(pod.DeviceOffer{Usable: 4, Unhealthy: 1})
	// Another process of podrun asks nobody again.
	d = New(o)
	for name, want := range map[string]string{"sidecar": "c", "init": "a b", "one": "a", "two": "b"} {
		got, err := d.Of(t.Context(), "s1", p, name)
		if err != nil || len(got.Answers) != 1 || got.Answers[0].Envs["IDS"] != want || len(got.CDI) > 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err := d.PreStart(t.Context(), got); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(plugins.calls)
	expect("start [a b] true", "start [a] true", "start [b] true", "start [c] true")
	if got, err := d.Of(t.Context(), "s1", p, "none"); err != nil || len(got.Answers)+len(got.CDI)+len(got.IDs) > 0 {
		t.Errorf("none: %+v, %v", got, err)
	}
	// What a pod has stays its own when it gets unhealthy, and is offered to nobody else.
	plugins.devices = healthy("-a", "b", "c", "d", "-e")
	offered(pod.DeviceOffer{Usable: 4, Unhealthy: 2})
	plugins.lost = time.Unix(1, 0)
	offered(pod.DeviceOffer{Usable: 4, Unhealthy: 2, Lost: time.Unix(1, 0)})
	plugins.lost = time.Time{}
	health := func(want v1.ResourceHealthStatus) {
		t.Helper()
		got := d.Health("s1", p)
		if of := got["one"]; len(of) != 1 || of[0].Name != log || len(of[0].Resources) != 1 ||
			of[0].Resources[0] != (v1.ResourceHealth{ResourceID: "a", Health: want}) || len(got["none"]) > 0 {
			t.Errorf("health: %+v, want %s", got, want)
		}
	}
	health(v1.ResourceHealthStatusUnhealthy)
	plugins.devices = healthy("b", "c", "d", "-e")
	health(v1.ResourceHealthStatusUnknown)
	plugins.devices = healthy("-a", "b", "c", "d", "-e")
	q := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{asking("c", "1")}}}
	// A refusal leaves nothing, and a plugin that hangs keeps nobody from his devices.
	plugins.refuse = errors.New("broken")
	other := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{asking("c", "1")}}}
	plugins.during = func() {
		plugins.during, plugins.refuse = nil, nil
		if err := d.Acquire(t.Context(), "s3", other); err == nil || !strings.Contains(err.Error(), "asks for 1, and 0 are free") {
			t.Errorf("what another one is getting: %v", err)
		}
		plugins.refuse = errors.New("broken")
	}
	plugins.calls = nil
	if err := d.Acquire(t.Context(), "s2", q); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("refused: %v", err)
	}
	plugins.refuse = nil
	if err := d.Acquire(t.Context(), "s3", other); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	if got := d.HeldBy("s3", other)["c"][log]; !slices.Equal(got, []string{"d"}) {
		t.Errorf("s3 has %v", got)
	}
	if got := d.HeldBy("s2", q); len(got) > 0 {
		t.Errorf("s2 has %v", got)
	}
}

// TestChangedConfiguration: what a pod has stays what it is when the node configuration says otherwise, and is nobody
// else's.
func TestChangedConfiguration(t *testing.T) {
	t.Parallel()
	const other = v1.ResourceName("podrun.example/other")
	present := map[string]bool{"s1": true, "s2": true}
	plugins := &standIn{devices: healthy("p1", "p2")}
	dirs := layout.Dirs{Run: t.TempDir()}
	with := func(named map[v1.ResourceName][]string) *Devices {
		return New(Options{Dirs: dirs, Plugins: plugins, Named: named, Present: func() (func(string) bool, error) { return in(present), nil }})
	}
	asks := func(name v1.ResourceName) v1.Container {
		c := asking(string(name), "1")
		c.Name = "c"
		c.Resources.Limits = v1.ResourceList{name: c.Resources.Limits[log]}
		c.Resources.Requests = c.Resources.Limits
		return c
	}
	both := asks(other)
	both.Resources.Limits[log] = both.Resources.Limits[other]
	p, q := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{both}}}, &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{asks("podrun.example/third")}}}
	if err := with(map[v1.ResourceName][]string{other: {"v/c=0"}}).Acquire(t.Context(), "s1", p); err != nil {
		t.Fatal(err)
	}
	for name, named := range map[string]map[v1.ResourceName][]string{
		"the same": {other: {"v/c=0"}}, "removed": {}, "renamed": {"podrun.example/third": {"v/c=0"}}, "the plugin's": {log: {"v/c=9"}},
	} {
		d := with(named)
		got, err := d.Of(t.Context(), "s1", p, "c")
		if err != nil || !slices.Equal(got.CDI, []string{"v/c=0"}) || !slices.Equal(got.IDs[log], []string{"p1"}) || len(got.Answers) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err := d.Acquire(t.Context(), "s2", q); err == nil {
			t.Errorf("%s: another pod has the same device", name)
		}
	}
}

// TestFormerAllocation: what a former version of podrun wrote down is read.
func TestFormerAllocation(t *testing.T) {
	t.Parallel()
	got, err := decode([]byte(`{"podrun.example/log": ["v/c=0"]}`))
	if err != nil || !slices.Equal(got.Devices[log], []string{"v/c=0"}) {
		t.Errorf("%+v, %v", got, err)
	}
}
