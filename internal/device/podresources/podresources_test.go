package podresources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
)

const gpu = v1.ResourceName("example.com/gpu")

// standIn are plugins with two devices, one of them near to two NUMA nodes, and one that is unhealthy.
type standIn struct {
	device.Plugins
	gone *atomic.Bool
}

func (s standIn) Devices() map[v1.ResourceName]map[string]device.Plugged {
	if s.gone.Load() {
		return map[v1.ResourceName]map[string]device.Plugged{gpu: {"c": {}}}
	}
	return map[v1.ResourceName]map[string]device.Plugged{gpu: {
		"a": {Healthy: true, NUMA: []int64{0, 1}}, "b": {Healthy: true}, "c": {},
	}}
}

func (standIn) Prefer(context.Context, v1.ResourceName, []string, []string, int) ([]string, error) {
	return nil, nil
}

func (standIn) Allocate(context.Context, v1.ResourceName, []string) (*v1beta1.ContainerAllocateResponse, bool, error) {
	return &v1beta1.ContainerAllocateResponse{}, false, nil
}

// written writes what a pod has: name/container resource=id@NUMA.
func written(p *podresources.PodResources) string {
	var out []string
	for _, c := range p.GetContainers() {
		line := p.Namespace + "/" + p.Name + "/" + c.Name
		for _, d := range c.Devices {
			line += fmt.Sprintf(" %s=%s", d.ResourceName, strings.Join(d.DeviceIds, ","))
			for _, n := range d.GetTopology().GetNodes() {
				line += fmt.Sprintf("@%d", n.ID)
			}
		}
		if len(c.CpuIds) > 0 {
			line += fmt.Sprint(" CPUs ", c.CpuIds)
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

func TestServer(t *testing.T) {
	t.Parallel()
	dir, gone := t.TempDir(), new(atomic.Bool)
	d := device.New(device.Options{
		Dirs: layout.Dirs{Run: dir}, Plugins: standIn{gone: gone}, Named: map[v1.ResourceName][]string{"example.com/log": {"v/c=0"}},
		Present: func() (func(string) bool, error) { return func(id string) bool { return id == "s" }, nil },
		CPUs:    device.CPUs{Static: true, All: cpuset.New(0, 1, 2), Reserved: cpuset.New(0)},
	})
	asks := func(name, number string) v1.Container {
		list := v1.ResourceList{
			gpu: resource.MustParse(number), v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Mi"),
		}
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: list, Requests: list}}
	}
	half := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Mi")}}
	sidecar := v1.Container{Name: "sidecar", RestartPolicy: new(v1.ContainerRestartPolicyAlways), Resources: half}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-n"}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{asks("init", "1"), sidecar}, Containers: []v1.Container{asks("main", "2"), {Name: "none", Resources: half}},
	}}
	if err := d.Acquire(t.Context(), "s", p); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o := Options{Dir: filepath.Join(dir, "pod-resources"), Devices: d, Pods: func() ([]device.Pod, error) {
		return []device.Pod{{Pod: p, Sandbox: "s"}}, nil
	}}
	go func() { ended <- Run(ctx, o) }()
	at := filepath.Join(o.Dir, "kubelet.sock")
	conn, err := grpc.NewClient("unix:"+at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for {
		if _, err := os.Stat(at); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	const want = "default/web-n/sidecar; default/web-n/main example.com/gpu=a@0 example.com/gpu=a@1 example.com/gpu=b CPUs [1]; default/web-n/none"
	client := podresources.NewPodResourcesListerClient(conn)
	all, err := client.List(t.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil || len(all.PodResources) != 1 || written(all.PodResources[0]) != want {
		t.Errorf("%v, %v\nwant %s", all, err, want)
	}
	one, err := client.Get(t.Context(), &podresources.GetPodResourcesRequest{PodName: "web-n", PodNamespace: "default"})
	if got := written(one.GetPodResources()); err != nil || got != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
	gone.Store(true) // what it does not list any more is where it was
	one, err = client.Get(t.Context(), &podresources.GetPodResourcesRequest{PodName: "web-n", PodNamespace: "default"})
	if got := written(one.GetPodResources()); err != nil || got != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
	gone.Store(false)
	_, err = client.Get(t.Context(), &podresources.GetPodResourcesRequest{PodName: "web-n", PodNamespace: "other"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("of another namespace: %v", err)
	}
	has, err := client.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{})
	if err != nil || len(has.Devices) != 4 || fmt.Sprint(has.CpuIds) != "[1 2]" {
		t.Errorf("%v, %v", has, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}
