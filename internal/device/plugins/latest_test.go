package plugins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
		m.listed(v1.ResourceName(of), m.listing(t, v1.ResourceName(of)), all)
	}
	list("example.com/r0", mostDevices-1)
	list("example.com/r1", 5)
	list("example.com/r0", mostDevices)
	has := m.Devices()
	if len(has["example.com/r0"]) != mostDevices-1 || len(has["example.com/r1"]) != 1 {
		t.Errorf("%d and %d devices", len(has["example.com/r0"]), len(has["example.com/r1"]))
	}
}

// TestLongAnswers: what plugins say is bounded in bytes too, in the memory and in what the next podrun reads, and a list
// that changes without end is written down now and then.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	m := run(t, t.TempDir())
	p := begin(t, filepath.Join(m.dir, "gpu.sock"), &v1beta1.DevicePluginOptions{})
	if err := m.register(t, request("gpu.sock")); err != nil {
		t.Fatal(err)
	}
	with := m.listing(t, gpu)
	written := 0
	for n := range 200 {
		all := []*v1beta1.Device{{ID: strings.Repeat("\x01", mostName+1)}, {ID: fmt.Sprint("short", n), Topology: &v1beta1.TopologyInfo{}}}
		for i := range int64(100) {
			all[1].Topology.Nodes = append(all[1].Topology.Nodes, &v1beta1.NUMANode{ID: i - 10}, &v1beta1.NUMANode{ID: 1 << 60})
		}
		for i := range mostIDs / mostName {
			all = append(all, &v1beta1.Device{ID: fmt.Sprintf("%0*d", mostName, i)})
		}
		before, _ := os.Stat(m.o.File)
		m.listed(gpu, with, all)
		if after, _ := os.Stat(m.o.File); !os.SameFile(before, after) {
			written++
		}
		devices := m.Devices()[gpu]
		bytes := 0
		for id := range devices {
			bytes += len(id)
		}
		if bytes > mostIDs || len(devices) != mostIDs/mostName || len(devices[fmt.Sprint("short", n)].NUMA) != mostNodes {
			t.Fatalf("%d devices with %d bytes, and NUMA nodes %v", len(devices), bytes, devices[fmt.Sprint("short", n)].NUMA)
		}
	}
	if written == 0 || written > 150 {
		t.Errorf("written %d times", written)
	}
	m.end() // what has not been written down is then
	if all, err := Read(m.o.File); err != nil || len(all) != 1 || len(all[0].Devices) == 0 {
		t.Errorf("%d, %v", len(all), err)
	} else if _, is := all[0].Devices["short199"]; !is {
		t.Error("the last list is not written down")
	}
	if err := os.Truncate(m.o.File, mostRemembered+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(m.o.File); err == nil {
		t.Error("a file of any size is read")
	}
	m = run(t, filepath.Dir(m.dir))
	if err := m.register(t, request("gpu.sock")); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{mostParts: true, mostParts + 1: false, 100_000: false} {
		p.mounts = make([]*v1beta1.Mount, n)
		for i := range p.mounts {
			p.mounts[i] = &v1beta1.Mount{ContainerPath: "/a", HostPath: "/b"}
		}
		if _, _, err := m.Allocate(t.Context(), gpu, []string{"short199"}); (err == nil) != want {
			t.Errorf("%d mounts: %v", n, err)
		}
	}
}
