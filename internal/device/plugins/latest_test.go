package plugins

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// TestLatest: a plugin that lists without end is looked at once in a second, and its last list counts; its end is noticed
// at once.
func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		begun, n := time.Now(), 0
		receive := func() (int, error) {
			time.Sleep(time.Millisecond)
			if n++; n > 10500 {
				return 0, gone
			}
			return n, nil
		}
		var all []int
		err := latest(t.Context(), receive, func(one int) { all = append(all, one) })
		if !errors.Is(err, gone) || time.Since(begun) > 10502*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if len(all) < 15 || len(all) > 25 || all[0] != 1 {
			t.Errorf("passed on %v", all)
		}
	})
}

// TestMost: plugins cannot have more resources and devices than the machine bears.
func TestMost(t *testing.T) {
	t.Parallel()
	m := run(t, t.TempDir())
	begin(t, filepath.Join(m.dir, "gpu.sock"), &v1beta1.DevicePluginOptions{})
	var err error
	for i := range mostResources + 1 {
		err = m.register(t, &v1beta1.RegisterRequest{
			Version: v1beta1.Version, Endpoint: "gpu.sock", ResourceName: fmt.Sprintf("example.com/r%d", i),
		})
		if want := i < mostResources; want != (err == nil) {
			t.Fatalf("resource %d: %v", i, err)
		}
	}
	list := func(of string, n int) {
		var all []*v1beta1.Device
		for i := range n {
			all = append(all, &v1beta1.Device{ID: fmt.Sprint(i), Health: v1beta1.Healthy})
		}
		name := v1.ResourceName(of)
		m.mu.Lock()
		p := m.resources[name].plugin
		m.mu.Unlock()
		m.listed(name, p, all)
	}
	list("example.com/r0", mostDevices-1)
	list("example.com/r1", 5)
	list("example.com/r0", mostDevices)
	has := m.Devices()
	if len(has["example.com/r0"]) != mostDevices-1 || len(has["example.com/r1"]) != 1 {
		t.Errorf("%d and %d devices", len(has["example.com/r0"]), len(has["example.com/r1"]))
	}
}
