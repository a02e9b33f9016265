// Package runtimetest is the conformance suite of the runtime port: it tests every implementation
// against the same contract. It knows none of the implementations; each test passes its own as a
// Subject.
//
// Begin reading at Subject and Run.
package runtimetest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Runtime is the whole runtime port.
type Runtime interface {
	runtime.Lister
	runtime.Notifier
	runtime.Sandboxes
	runtime.Containers
	runtime.Images
	runtime.Execer
	runtime.Attacher
	runtime.Data
	runtime.Layers
}

// Subject is an implementation under test.
type Subject struct {
	Runtime
	// Image is a reference to an image that is present. If Runs is set, the image has busybox's sh.
	Image string
	// Exit makes a running instance that runs Script exit with a code from 0 to 127.
	Exit func(t *testing.T, id string, code int)
	// HasCgroup reports whether that revision of a pod has a cgroup.
	HasCgroup func(uid pod.UID) bool
	// CannotStart changes a container so that it cannot be started; nil means that NoSuchCommand as
	// its command is enough.
	CannotStart func(c *v1.Container)
	// Runs means that commands really run, so that files and namespaces can be inspected from
	// inside.
	Runs bool
	// NoUsers means that pods cannot have their own user namespace here, for example with an old
	// containerd.
	NoUsers bool
	// Device is the resource that containers request in limits to get the only device, at
	// DevicePath; "" means that there is no device.
	Device v1.ResourceName
}

// DevicePath is the path of a Subject's Device in containers.
const DevicePath = "/dev/conformance"

// Script is what the suite's containers run, with `sh -c`. It exits with code 143 on TERM, and with
// the code in the file /exit as soon as that file exists.
const Script = `trap 'exit 143' TERM; while [ ! -e /exit ]; do sleep 0.02; done; exit $(cat /exit)`

// NoSuchCommand is a command that is not in the image.
const NoSuchCommand = "/no/such/command"

// patience bounds the wait for an expected event.
const patience = time.Minute

// Run runs the suite. Each case gets its own, empty Subject from fresh.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s subject)
	}{
		{"life of an instance", testLife},
		{"an exit with 0 is completed", testCompleted},
		{"a start that is repeated", testStartAgain},
		{"a start of the next attempt", testNextAttempt},
		{"a missing object is success", testMissing},
		{"a command that cannot be started", testStartError},
		{"signals", testSignals},
		{"a running instance is not removed", testRemoveRunning},
		{"inspect shows what list shows", testInspectIsList},
		{"wakeups", testWakeups},
		{"an interrupted start", testInterruptedStart},
		{"sandboxes", testSandboxes},
		{"host ports", testHostPorts},
		{"data", testData},
		{"instances that another program removed", testRemembered},
		{"notes", testNotes},
		{"variables", testEnv},
		{"images as volumes", testShow},
		{"odd names", testOddNames},
		{"containers of a pod share namespaces", testShared},
		{"security contexts", testSecurity},
		{"sidecars", testSidecar},
		{"resize of a running instance", testResize},
		{"CPUs to run on", testCPUs},
		{"a limit of memory", testMemory},
		{"devices", testDevices},
		{"user namespaces", testOwnUsers},
		{"disk usage", testLayer},
		{"a termination message of the caller", testMessage},
		{"a termination message of the container", testOwnMessage},
		{"host namespaces", testHostNamespaces},
		{"kernel parameters", testSysctls},
		{"hooks and stop signals", testLifecycle},
		{"a shared process namespace", testSharedProcesses},
		{"exec", testExec},
		{"exec is killed with its context", testExecCancelled},
		{"exec is not blocked by its output", testExecUnheard},
		{"standard input", testStdin},
		{"standard input from inside", testStdinInside},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // mostly they wait
			c.run(t, subject{fresh(t), rand.Text()})
		})
	}
}

// subject adds the suite's helpers to a Subject.
type subject struct {
	Subject
	// run is part of every UID, because objects that are named after UIDs, such as cgroups, are
	// global to the machine.
	run string
}

func (s subject) uid(name string) pod.UID { return pod.UID(name + "." + s.run) }

// newPod returns a pod with the named containers, which all run Script.
func (s subject) newPod(name, revision string, containers ...string) *v1.Pod {
	uid := s.uid(revision)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
	p.Spec.TerminationGracePeriodSeconds = new(int64(7))
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: c, Image: s.Image, Command: []string{"sh", "-c", Script},
		})
	}
	return p
}

// ready saves the pod, creates its first sandbox and returns the Start of its first container.
func (s subject) ready(t *testing.T, p *v1.Pod) runtime.Start {
	t.Helper()
	must(t, s.SavePod(p, "serve"))
	must(t, s.CreateSandbox(t.Context(), p, 0))
	o := s.inspect(t, p)
	if len(o.Sandboxes) != 1 {
		t.Fatalf("sandboxes: %+v", o.Sandboxes)
	}
	image, err := s.Resolve(t.Context(), s.Image)
	must(t, err)
	return runtime.Start{Pod: p, Container: &p.Spec.Containers[0], Sandbox: o.Sandboxes[0], Image: image}
}

// start starts the instance and returns its state after that.
func (s subject) start(t *testing.T, start runtime.Start) pod.Container {
	t.Helper()
	must(t, s.StartContainer(t.Context(), start))
	return s.instance(t, start)
}

func (s subject) inspect(t *testing.T, p *v1.Pod) pod.Observed {
	t.Helper()
	o, err := s.Inspect(t.Context(), pod.KeyOf(p))
	must(t, err)
	return o
}

// instance returns the instance to which start refers.
func (s subject) instance(t *testing.T, start runtime.Start) pod.Container {
	t.Helper()
	for _, c := range s.inspect(t, start.Pod).Containers {
		if c.UID == start.Pod.UID && c.Name == start.Container.Name && c.Attempt == start.Attempt {
			return c
		}
	}
	t.Fatalf("no instance of %s attempt %d", start.Container.Name, start.Attempt)
	return pod.Container{}
}

// ended waits until the instance has exited and returns it.
func (s subject) ended(t *testing.T, start runtime.Start) pod.Container {
	t.Helper()
	var c pod.Container
	eventually(t, "the instance exits", func() bool {
		c = s.instance(t, start)
		return c.State == pod.Exited
	})
	return c
}

// remove kills and removes everything that is left of the pod.
func (s subject) remove(t *testing.T, p *v1.Pod) {
	t.Helper()
	for _, c := range s.inspect(t, p).Containers {
		must(t, s.SignalContainer(t.Context(), c.ID, "KILL"))
		eventually(t, "the instance can be reaped", func() bool {
			return s.ReapContainer(t.Context(), c.ID, "") == nil
		})
		must(t, s.RemoveContainer(t.Context(), c.ID))
	}
	o := s.inspect(t, p)
	for _, sandbox := range o.Sandboxes {
		must(t, s.RemoveSandbox(t.Context(), sandbox.ID, nil))
	}
	for _, uid := range o.Data {
		must(t, s.RemoveData(t.Context(), o.Key, uid))
	}
	if o := s.inspect(t, p); !o.Empty() {
		t.Errorf("left of %s: %+v", o.Key, o)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually repeats so until it returns true, and fails the test after patience.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !so() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("not so within %s: %s", patience, what)
		}
	}
}
