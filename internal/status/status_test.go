package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// TestNothingWaitsInAPodThatHasEnded: the deadline passed before a container started.
func TestNothingWaitsInAPodThatHasEnded(t *testing.T) {
	late := plan.Plan{Completed: true, Failure: &plan.Waiting{Reason: "DeadlineExceeded"}}
	failed := pod.Container{ID: "1", Name: "i", UID: "u1", State: pod.Exited, Exit: pod.Exit{ExitCode: 1}}
	for name, tt := range map[string]struct {
		inits []string
		seen  []pod.Container
		plan  plan.Plan
		want  string
	}{
		"no init containers":            {nil, nil, late, "ContainerStatusUnknown"},
		"the first init container":      {[]string{"i", "j"}, nil, late, "ContainerStatusUnknown waiting waiting"},
		"an init container that failed": {[]string{"i", "j"}, []pod.Container{failed}, plan.Plan{Completed: true}, "Error waiting waiting"},
		"not yet":                       {nil, nil, plan.Plan{}, "waiting"},
	} {
		p := &v1.Pod{}
		p.UID, p.Spec.RestartPolicy, p.Spec.Containers = "u1", v1.RestartPolicyNever, []v1.Container{{Name: "c"}}
		for _, init := range tt.inits {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: init})
		}
		s := Of(Input{Pod: p, Observed: pod.Observed{Containers: tt.seen}, Plan: tt.plan})
		var got []string
		for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
			got = append(got, word(c.State))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if tt.plan.Completed && s.Phase != v1.PodFailed {
			t.Errorf("%s: %s", name, s.Phase)
		}
	}
}

// TestOrder: the statuses of containers are sorted by name, those of init containers are in the order of the manifest.
// What the status says of the pod does not depend on it.
func TestOrder(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{}
	p.UID, p.Spec.RestartPolicy = "u1", v1.RestartPolicyNever
	onlyC := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{{Name: "z"}, {Name: "y"}}
	p.Spec.Containers = []v1.Container{{Name: "c", RestartPolicy: &onlyC}, {Name: "a"}, {Name: "b"}}
	var seen pod.Observed
	for _, name := range []string{"z", "y", "c", "a", "b"} {
		seen.Containers = append(seen.Containers, pod.Container{ID: name, Name: name, UID: "u1", State: pod.Exited})
	}
	seen.Containers[3].Exit.ExitCode = 1
	s := Of(Input{Pod: p, Observed: seen})
	var got []string
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		got = append(got, fmt.Sprint(c.Name, c.State.Terminated.ExitCode))
	}
	if strings.Join(got, " ") != "z0 y0 a1 b0 c0" || s.Phase != v1.PodRunning {
		t.Errorf("%s, %s", got, s.Phase)
	}
}

// TestStopSignalIsShown: the status shows the stop signal of containers that have one of their own.
func TestStopSignalIsShown(t *testing.T) {
	p := &v1.Pod{}
	p.UID, p.Spec.Containers = "u1", []v1.Container{{Name: "a"}, {Name: "b"}}
	s := Of(Input{Pod: p, Observed: pod.Observed{Containers: []pod.Container{
		{ID: "1", Name: "a", UID: "u1", State: pod.Running, Termination: pod.Termination{StopSignal: "SIGUSR1"}}, {ID: "2", Name: "b", UID: "u1", State: pod.Running},
	}}})
	if got := s.ContainerStatuses[0].StopSignal; got == nil || *got != v1.SIGUSR1 {
		t.Errorf("%v", got)
	}
	if got := s.ContainerStatuses[1].StopSignal; got != nil {
		t.Errorf("%v", *got)
	}
}

// TestRestartsAndPhases checks the status for observations of one container c.
func TestRestartsAndPhases(t *testing.T) {
	t.Parallel()
	then := time.Unix(1_700_000_000, 0)
	c := func(attempt int, state pod.State, code int) pod.Container {
		return pod.Container{ID: "id", Name: "c", UID: "u1", Attempt: attempt, State: state, StartedAt: then,
			Exit: pod.Exit{ExitCode: code, FinishedAt: then.Add(time.Second)}}
	}
	waiting := plan.Plan{Waiting: map[string]plan.Waiting{"c": {Reason: "ContainerCreating"}}}
	tests := []struct {
		name     string
		policy   v1.RestartPolicy
		seen     pod.Observed
		plan     plan.Plan
		phase    v1.PodPhase
		restarts int32
		state    string // running, waiting, or the reason of a termination
		last     string
	}{
		{"nothing yet", v1.RestartPolicyAlways, pod.Observed{}, waiting, v1.PodPending, 0, "waiting", ""},
		{"running", v1.RestartPolicyAlways, pod.Observed{Containers: []pod.Container{c(2, pod.Running, 0)}}, plan.Plan{}, v1.PodRunning, 2, "running", ""},
		{"a start that was cut off is no restart", v1.RestartPolicyAlways,
			pod.Observed{Containers: []pod.Container{c(1, pod.Created, 0), c(0, pod.Exited, 137)}}, waiting, v1.PodRunning, 0, "waiting", "Error"},
		{"nor is a first one", v1.RestartPolicyAlways,
			pod.Observed{Containers: []pod.Container{c(0, pod.Created, 0)}}, waiting, v1.PodPending, 0, "waiting", ""},
		{"removed by somebody else", v1.RestartPolicyAlways,
			pod.Observed{Remembered: []pod.Container{c(3, pod.Running, 0)}}, waiting, v1.PodRunning, 3, "waiting", "ContainerStatusUnknown"},
		{"completed, and then removed", v1.RestartPolicyOnFailure,
			pod.Observed{Remembered: []pod.Container{c(1, pod.Exited, 0)}}, plan.Plan{Completed: true}, v1.PodSucceeded, 1, "Completed", ""},
		{"failed, and then removed", v1.RestartPolicyNever,
			pod.Observed{Remembered: []pod.Container{c(0, pod.Exited, 3)}}, plan.Plan{Completed: true}, v1.PodFailed, 0, "Error", ""},
		{"failed, unless it runs on", v1.RestartPolicyNever,
			pod.Observed{Containers: []pod.Container{c(0, pod.Exited, 255)}}, plan.Plan{Unsure: true}, v1.PodRunning, 0, "Error", ""},
		{"what is there counts", v1.RestartPolicyAlways,
			pod.Observed{Containers: []pod.Container{c(3, pod.Running, 0)}, Remembered: []pod.Container{c(3, pod.Exited, 1)}}, plan.Plan{}, v1.PodRunning, 3, "running", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &v1.Pod{}
			p.UID, p.Spec.RestartPolicy, p.Spec.Containers = "u1", tt.policy, []v1.Container{{Name: "c"}}
			s := Of(Input{Pod: p, Observed: tt.seen, Plan: tt.plan, Now: then})
			got := s.ContainerStatuses[0]
			if s.Phase != tt.phase || got.RestartCount != tt.restarts || word(got.State) != tt.state || word(got.LastTerminationState) != tt.last {
				t.Errorf("phase %s, restarts %d, %q after %q", s.Phase, got.RestartCount, word(got.State), word(got.LastTerminationState))
			}
		})
	}
}

// TestPhasesOfInitialization checks the status of a pod with an init container i, a sidecar s and a
// container c.
func TestPhasesOfInitialization(t *testing.T) {
	t.Parallel()
	c := func(name string, state pod.State, code int) pod.Container {
		return pod.Container{ID: name, Name: name, UID: "u1", State: state, Exit: pod.Exit{ExitCode: code}}
	}
	yet := plan.Waiting{Reason: "PodInitializing"}
	const initialize, running, succeeded, failed = v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed
	for _, tt := range []struct {
		name        string
		seen        []pod.Container
		waiting     string // the names of those that wait
		completed   bool
		probed      map[string]pod.Probed
		phase       v1.PodPhase
		initialized v1.ConditionStatus
		ready       string // the ready condition's reason
	}{
		{"nothing yet", nil, "isc", false, nil, initialize, "False", "ContainersNotReady"},
		{"the init container runs", []pod.Container{c("i", pod.Running, 0)}, "sc", false, nil, initialize, "False", "ContainersNotReady"},
		{"it failed", []pod.Container{c("i", pod.Exited, 1)}, "isc", false, nil, initialize, "False", "ContainersNotReady"},
		{"it failed for good", []pod.Container{c("i", pod.Exited, 1)}, "", true, nil, failed, "False", "PodFailed"},
		{"the sidecar runs, but has not started up", []pod.Container{c("i", pod.Exited, 0), c("s", pod.Running, 0)}, "c", false, nil, initialize, "False", "ContainersNotReady"},
		{"it has", []pod.Container{c("i", pod.Exited, 0), c("s", pod.Running, 0)}, "c", false, map[string]pod.Probed{"s": {Started: new(true)}}, initialize, "True", "ContainersNotReady"},
		{"all run", []pod.Container{c("i", pod.Exited, 0), c("s", pod.Running, 0), c("c", pod.Running, 0)}, "", false, map[string]pod.Probed{"s": {Started: new(true)}}, running, "True", ""},
		{"the sidecar died", []pod.Container{c("i", pod.Exited, 0), c("s", pod.Exited, 1), c("c", pod.Running, 0)}, "s", false, nil, running, "True", "ContainersNotReady"},
		{"the container died", []pod.Container{c("i", pod.Exited, 0), c("s", pod.Running, 0), c("c", pod.Exited, 1)}, "c", false, map[string]pod.Probed{"s": {Started: new(true)}}, running, "True", "ContainersNotReady"},
		{"only the sidecar is left", []pod.Container{c("i", pod.Exited, 0), c("s", pod.Running, 0), c("c", pod.Exited, 0)}, "", false, nil, running, "True", "ContainersNotReady"},
		{"completed", []pod.Container{c("i", pod.Exited, 0), c("s", pod.Exited, 143), c("c", pod.Exited, 0)}, "", true, nil, succeeded, "True", "PodCompleted"},
		{"initialized anew", []pod.Container{c("i", pod.Running, 0), c("s", pod.Exited, 143), c("c", pod.Exited, 143)}, "sc", false, nil, initialize, "True", "ContainersNotReady"},
	} {
		p := &v1.Pod{}
		p.UID, p.Spec.RestartPolicy = "u1", v1.RestartPolicyOnFailure
		p.Spec.InitContainers = []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: new(v1.ContainerRestartPolicyAlways), StartupProbe: &v1.Probe{}}}
		p.Spec.Containers = []v1.Container{{Name: "c"}}
		in := Input{Pod: p, Observed: pod.Observed{Containers: tt.seen}, Probed: tt.probed, Plan: plan.Plan{Completed: tt.completed, Waiting: map[string]plan.Waiting{}}}
		for _, name := range strings.Split(tt.waiting, "") {
			in.Plan.Waiting[name] = yet
		}
		s := Of(in)
		if s.Phase != tt.phase || s.Conditions[1].Status != tt.initialized || s.Conditions[2].Reason != tt.ready {
			t.Errorf("%s: %s, initialized %s, ready %s", tt.name, s.Phase, s.Conditions[1].Status, s.Conditions[2].Reason)
		}
	}
}

func TestMessagesHaveALimitTogether(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 4096, 3: 4096, 4: 3072, 6: 2048} {
		p, seen := &v1.Pod{}, pod.Observed{}
		p.UID, p.Spec.RestartPolicy = "u1", v1.RestartPolicyNever
		for i := range n {
			name := string(rune('a' + i))
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
			seen.Containers = append(seen.Containers, pod.Container{ID: name, Name: name, UID: "u1", State: pod.Exited,
				Exit: pod.Exit{Message: strings.Repeat("x", 4096)}})
		}
		for _, c := range Of(Input{Pod: p, Observed: seen, Plan: plan.Plan{Completed: true}}).ContainerStatuses {
			if got := len(c.State.Terminated.Message); got != want {
				t.Errorf("%d containers: message of %d bytes, want %d", n, got, want)
			}
		}
	}
}

func word(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Waiting != nil:
		return "waiting"
	case s.Terminated != nil:
		return s.Terminated.Reason
	default:
		return ""
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	if keys, err := Keys(dirs); err != nil || len(keys) > 0 {
		t.Errorf("before there is any: %v, %v", keys, err)
	}
	files := NewFiles(dirs)
	for _, name := range []string{"stays-n", "goes-n"} {
		p := &v1.Pod{}
		p.Namespace, p.Name = "default", name
		if err := files.Publish(p, time.Now(), true); err != nil {
			t.Fatal(err)
		}
	}
	stays := pod.Key{Namespace: "default", Name: "stays-n"}
	if err := files.Gone(pod.Key{Namespace: "default", Name: "goes-n"}); err != nil {
		t.Fatal(err)
	}
	if keys, err := Keys(dirs); err != nil || len(keys) != 1 || keys[0] != stays {
		t.Errorf("%v, %v, want %v", keys, err, stays)
	}
}

// TestVolumeMounts: the status has the mounts of each container, also of one that has not started; a read-only
// one says whether the mounts below it are read-only too.
func TestVolumeMounts(t *testing.T) {
	p := &v1.Pod{}
	p.UID = "u1"
	mounts := []v1.VolumeMount{
		{Name: "a", MountPath: "/a"},
		{Name: "a", MountPath: "/b", ReadOnly: true, SubPath: "x"},
		{Name: "a", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)},
		{Name: "a", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyDisabled)},
		{Name: "a", MountPath: "/e", RecursiveReadOnly: new(v1.RecursiveReadOnlyDisabled)},
	}
	p.Spec.InitContainers = []v1.Container{{Name: "i", VolumeMounts: mounts[:1]}}
	p.Spec.Containers = []v1.Container{{Name: "c", VolumeMounts: mounts}, {Name: "d"}}
	s := Of(Input{Pod: p, Observed: pod.Observed{Containers: []pod.Container{{ID: "1", Name: "c", UID: "u1", State: pod.Running}}}})
	var got []string
	for _, m := range s.ContainerStatuses[0].VolumeMounts {
		line := m.Name + m.MountPath
		if m.ReadOnly {
			line += " ro"
		}
		if m.RecursiveReadOnly != nil {
			line += " " + string(*m.RecursiveReadOnly)
		}
		got = append(got, line)
	}
	if want := "a/a,a/b ro Disabled,a/c ro Enabled,a/d ro Disabled,a/e"; strings.Join(got, ",") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if init := s.InitContainerStatuses[0].VolumeMounts; len(init) != 1 || init[0].Name != "a" || len(s.ContainerStatuses[1].VolumeMounts) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestUserIsShown: the user of the process, which is not known of an instance that an earlier podrun started.
func TestUserIsShown(t *testing.T) {
	p := &v1.Pod{}
	p.UID, p.Spec.Containers = "u1", []v1.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	s := Of(Input{Pod: p, Observed: pod.Observed{Containers: []pod.Container{
		{ID: "1", Name: "a", UID: "u1", State: pod.Exited, Process: pod.Process{User: pod.UserOf(7, 8, []uint32{8, 9})}},
		{ID: "2", Name: "b", UID: "u1", State: pod.Running},
	}}})
	user := s.ContainerStatuses[0].User
	if user == nil || user.Linux.UID != 7 || user.Linux.GID != 8 || !slices.Equal(user.Linux.SupplementalGroups, []int64{8, 9}) {
		t.Errorf("%+v", user)
	}
	for _, c := range s.ContainerStatuses[1:] {
		if c.User != nil {
			t.Errorf("%s: %+v", c.Name, c.User)
		}
	}
}

// TestVolumeStatus: the mounts of an image volume say which image is mounted, by its digest alone if its name is
// too long for Kubernetes; other mounts, and those of a container that has not started, say nothing.
func TestVolumeStatus(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{}
	p.UID = "u1"
	mounts := []v1.VolumeMount{{Name: "i", MountPath: "/i"}, {Name: "d", MountPath: "/d"}, {Name: "i", MountPath: "/j", SubPath: "x"}, {Name: "l", MountPath: "/l"}}
	p.Spec.Containers = []v1.Container{{Name: "c", VolumeMounts: mounts}, {Name: "later", VolumeMounts: mounts}}
	long := strings.Repeat("x", 250)
	images := pod.VolumeImagesOf(map[string]string{"i": "example.com/files@sha256:1", "l": long + "@sha256:2"})
	s := Of(Input{Pod: p, Observed: pod.Observed{Containers: []pod.Container{
		{ID: "1", Name: "c", UID: "u1", State: pod.Running, Process: pod.Process{VolumeImages: images}},
	}}})
	for n, want := range []string{"example.com/files@sha256:1  example.com/files@sha256:1 sha256:2", "   "} {
		var got []string
		for _, m := range s.ContainerStatuses[n].VolumeMounts {
			ref := ""
			if m.VolumeStatus != nil {
				ref = m.VolumeStatus.Image.ImageRef
			}
			got = append(got, ref)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("container %d: %q, want %q", n, got, want)
		}
	}
}
