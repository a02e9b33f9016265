package plugins

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/sys/pace"
)

const (
	// preferTimeout is how long a plugin may take to say which devices it prefers: others are taken then.
	preferTimeout = 5 * time.Second
	// callTimeout is how long Allocate and PreStartContainer may take. The kubelet limits only the second,
	// to this.
	callTimeout = v1beta1.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
	// mostParts is how many variables, mounts, devices, annotations and CDI devices each a plugin may give a container,
	// and mostAnswer how many bytes all of that has: it is kept as long as the pod, and put together at each start.
	mostParts  = 1000
	mostAnswer = 1 << 18
)

// of returns the plugin of a resource, as it is now. If it is not there, its last options are returned with the error,
// nil if none of them are left.
func (m *Manager) of(name v1.ResourceName) (plugin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	switch {
	case r == nil:
		return plugin{}, fmt.Errorf("no device plugin has registered %s", name)
	case r.plugin.client == nil:
		return plugin{options: r.plugin.options}, fmt.Errorf("the device plugin of %s is not there", name)
	}
	return plugin{client: r.plugin.client, options: r.plugin.options}, nil
}

// Prefer implements device.Plugins.
func (m *Manager) Prefer(
	ctx context.Context, name v1.ResourceName, free, must []string, number int,
) ([]string, error) {
	p, err := m.of(name)
	if err != nil || !p.options.GetGetPreferredAllocationAvailable() {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, preferTimeout)
	defer cancel()
	answer, err := p.client.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: free, MustIncludeDeviceIDs: must, AllocationSize: int32(number),
		}},
	})
	if err != nil {
		m.o.Log.Warn("a device plugin does not say which devices it prefers", "resource", name, "err", err)
		return nil, err
	}
	if len(answer.ContainerResponses) == 0 {
		return nil, nil
	}
	return answer.ContainerResponses[0].DeviceIDs, nil
}

// Allocate implements device.Plugins.
func (m *Manager) Allocate(
	ctx context.Context, name v1.ResourceName, ids []string,
) (*v1beta1.ContainerAllocateResponse, bool, error) {
	p, err := m.of(name)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := p.client.Allocate(ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}},
	}, grpc.MaxCallRecvMsgSize(mostAnswer))
	if err != nil {
		return nil, false, fmt.Errorf("the device plugin of %s does not allocate %v: %w", name, ids, err)
	}
	if len(answer.ContainerResponses) == 0 {
		return nil, false, fmt.Errorf("the device plugin of %s allocates nothing for %v", name, ids)
	}
	one := answer.ContainerResponses[0]
	counts := []int{len(one.Envs), len(one.Mounts), len(one.Devices), len(one.Annotations), len(one.CdiDevices)}
	for _, n := range counts {
		if n > mostParts {
			return nil, false, fmt.Errorf("the device plugin of %s allocates %[3]d things of a kind for %[2]v, more than %[4]d",
				name, ids, n, mostParts)
		}
	}
	return one, p.options.GetPreStartRequired(), nil
}

// PreStart implements device.Plugins.
func (m *Manager) PreStart(ctx context.Context, name v1.ResourceName, ids []string, was bool) error {
	p, err := m.of(name)
	if p.options != nil {
		was = p.options.PreStartRequired // it may be another version of the plugin by now
	}
	if !was {
		return nil // a plugin that prepares nothing need not be there
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := p.client.PreStartContainer(ctx, &v1beta1.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("the device plugin of %s refuses the start of a container with %v: %w", name, ids, err)
	}
	return nil
}

// A plugin may list its devices without end: after the first lists podrun looks at one in a second.
const (
	listsAtOnce   = 10
	listsInterval = time.Second
)

// latest passes on what is received until that fails. Of what comes faster than the limits allow only the last counts.
func latest[T any](ctx context.Context, receive func() (T, error), pass func(T)) (err error) {
	ctx, end := context.WithCancel(ctx)
	last := make(chan T, 1)
	go func() {
		defer close(last)
		defer end()
		for {
			var one T
			if one, err = receive(); err != nil {
				return
			}
			select { // what nobody has seen is outdated
			case <-last:
			default:
			}
			last <- one
		}
	}()
	limit := pace.Pace{AtOnce: listsAtOnce, Every: listsInterval}
	for one := range last {
		select { // a newer one may have come while it had to wait
		case newer, is := <-last:
			if is {
				one = newer
			}
		default:
		}
		pass(one)
		_ = limit.Wait(ctx) // it ends when none comes any more
	}
	return err
}
