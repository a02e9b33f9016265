package runtimetest

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/runtime"
)

// testDevices requests a device in limits. Only the container that requests it gets it; the pod
// keeps it across restarts; another pod gets it only after the pod's sandbox has been removed.
func testDevices(t *testing.T, s subject) {
	if s.Device == "" {
		t.Skip("this runtime has no devices")
	}
	asking := func(name string) *v1.Pod {
		p := s.newPod(name+"-node", "uid-"+name, "main", "without")
		list := v1.ResourceList{s.Device: resource.MustParse("1")}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list, Requests: list}
		return p
	}
	a, b := asking("device-a"), asking("device-b")
	start := s.ready(t, a)
	must(t, s.SavePod(b, "serve"))
	for attempt := range 2 {
		start.Attempt = attempt
		c := s.start(t, start)
		if code := s.exec(t, c.ID, "[ -c "+DevicePath+" ]"); code != 0 {
			t.Errorf("attempt %d does not have it", attempt)
		}
		var reason *runtime.ReasonError
		err := s.CreateSandbox(t.Context(), b, 0)
		if !errors.As(err, &reason) || reason.Reason != runtime.ReasonAdmission {
			t.Errorf("attempt %d: another pod asks for what is taken: %v", attempt, err)
		}
		if o := s.inspect(t, b); len(o.Containers) > 0 {
			t.Errorf("left: %+v", o.Containers)
		}
		s.Exit(t, c.ID, 1)
		s.ended(t, start)
	}
	start.Container, start.Attempt = &a.Spec.Containers[1], 0
	if code := s.exec(t, s.start(t, start).ID, "[ ! -e "+DevicePath+" ]"); code != 0 {
		t.Error("a container that does not ask for it has it")
	}
	s.remove(t, a)
	if code := s.exec(t, s.start(t, s.ready(t, b)).ID, "[ -c "+DevicePath+" ]"); code != 0 {
		t.Error("a device that is free again is not there")
	}
	s.remove(t, b)
}
