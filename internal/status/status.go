// Package status converts what was observed and planned for a pod into its v1.PodStatus. [Of] is
// pure; [Files] stores the result in status files, which can be read while no podrun process runs.
//
// The package decides nothing, and no decision of podrun depends on a status file. Begin reading at
// [Of].
package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// Input is everything that Of derives a status from.
type Input struct {
	Pod      *v1.Pod
	Observed pod.Observed
	Plan     plan.Plan
	// Probed holds the probe and hook results of each instance, by instance ID.
	Probed map[string]pod.Probed
	// Ready is, by instance ID, the readiness of instances that are being terminated for good, where
	// Probed does not say it.
	Ready map[string]bool
	// HostIP is the node's address; "" if it is not known.
	HostIP string
	// Before are the conditions that were last published for this revision; nil if there were none.
	// A condition whose status has not changed keeps its transition time from them.
	Before []v1.PodCondition
	Now    time.Time
}

// Of returns the status of the wanted revision. The statuses of containers are sorted by name, those of init containers
// are in the order of the manifest, as with the kubelet (kubelet_pods.go, convertToAPIContainerStatuses).
func Of(in Input) v1.PodStatus {
	mine, _ := in.Observed.Split(in.Pod.UID)
	if in.Plan.Again { // all of it is of an earlier run, whose results are not this run's
		mine = pod.Observed{}
	}
	// An instance that never ran is not a restart: the one before it is shown.
	mine.Containers = slices.DeleteFunc(mine.Containers, func(c pod.Container) bool { return c.State == pod.Created })
	s := v1.PodStatus{QOSClass: pod.QOS(in.Pod), HostIP: in.HostIP}
	if in.HostIP != "" {
		s.HostIPs = []v1.HostIP{{IP: in.HostIP}}
	}
	if seen, err := time.Parse(time.RFC3339Nano, in.Pod.Annotations[manifest.AnnotationSeen]); err == nil {
		s.StartTime = &metav1.Time{Time: seen}
	}
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		one := containerStatus(c, mine, in)
		if !pod.IsSidecar(c) {
			one.Ready = one.State.Terminated != nil && one.State.Terminated.ExitCode == 0
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, one)
	}
	for i := range in.Pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, containerStatus(&in.Pod.Spec.Containers[i], mine, in))
	}
	limitMessages(&s)
	s.Phase = phase(in.Pod, s, in.Plan)
	if f := in.Plan.Failure; f != nil {
		s.Reason, s.Message = f.Reason, f.Message
		if in.Plan.Completed {
			s.Phase = v1.PodFailed
		}
	}
	setIPs(&s, in, mine)
	s.Conditions = append(conditions(in, s, mine), passing(in, s.Phase)...)
	if in.Plan.Completed {
		settleTerminal(in.Pod, &s)
	}
	// Until here they are in the order of the manifest.
	slices.SortFunc(s.ContainerStatuses, func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// setIPs sets the addresses that the pod has, or had last.
func setIPs(s *v1.PodStatus, in Input, mine pod.Observed) {
	had := slices.Concat(mine.Sandboxes, mine.Gone)
	if len(had) == 0 {
		return
	}
	ips := had[0].IPs
	if in.Pod.Spec.HostNetwork && in.HostIP != "" {
		ips = []string{in.HostIP}
	}
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		s.PodIP = ips[0]
	}
}

func containerStatus(c *v1.Container, mine pod.Observed, in Input) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image, VolumeMounts: volumeMounts(c)}
	last, lost, found := mine.Last(in.Pod.UID, c.Name)
	waiting, isWaiting := in.Plan.Waiting[c.Name]
	if !found {
		if !isWaiting {
			waiting = plan.NotYet(in.Pod)
		}
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: waiting.Reason, Message: waiting.Message}
		started := false
		s.Started = &started
		return s
	}
	s.RestartCount = int32(last.Attempt)
	if last.State == pod.Created && last.Attempt > 0 {
		s.RestartCount-- // it has not been restarted yet, and may never be
	}
	s.ImageID = last.ImageID
	s.ContainerID = containerID(last)
	s.User = pod.ReadUser(last.User)
	addVolumeStatus(s.VolumeMounts, pod.ReadVolumeImages(last.VolumeImages))
	if last.StopSignal != "" {
		s.StopSignal = new(v1.Signal(last.StopSignal))
	}
	running := last.State == pod.Running && !lost
	s.AllocatedResources, s.Resources = c.Resources.Requests, c.Resources.DeepCopy()
	if running {
		s.Resources = new(pod.RunsWith(c, last.Resources))
	}
	started := running && in.Probed[last.ID].IsStarted(c)
	s.Started, s.Ready = &started, running && in.Probed[last.ID].IsReady(c)
	if is, known := in.Ready[last.ID]; known {
		s.Ready = running && is
	}
	switch {
	case running:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: seconds(last.StartedAt)}
		if before, ok := ended(mine, in.Pod.UID, c.Name, last.Attempt-1); ok {
			s.LastTerminationState.Terminated = terminated(before)
		}
	case last.State == pod.Exited && !isWaiting:
		s.State.Terminated = terminated(last)
		if before, ok := ended(mine, in.Pod.UID, c.Name, last.Attempt-1); ok {
			s.LastTerminationState.Terminated = terminated(before)
		}
	default:
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: waiting.Reason, Message: waiting.Message}
		switch {
		case last.State == pod.Exited:
			s.LastTerminationState.Terminated = terminated(last)
		case lost:
			s.LastTerminationState.Terminated = removed(last)
		}
	}
	return s
}

// volumeMounts returns the mounts of c as the kubelet shows them, also before they exist.
func volumeMounts(c *v1.Container) []v1.VolumeMountStatus {
	var all []v1.VolumeMountStatus
	for _, m := range c.VolumeMounts {
		one := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			one.RecursiveReadOnly = new(v1.RecursiveReadOnlyDisabled)
			if r := m.RecursiveReadOnly; r != nil && *r != v1.RecursiveReadOnlyDisabled {
				one.RecursiveReadOnly = new(v1.RecursiveReadOnlyEnabled)
			}
		}
		all = append(all, one)
	}
	return all
}

// mostImageRef is the maximum length of an imageRef, Kubernetes'.
const mostImageRef = 256

// addVolumeStatus adds to the mounts of image volumes which image is mounted, as the kubelet does with the
// feature gate ImageVolumeWithDigest. ids are the IDs of the images by volume name.
func addVolumeStatus(mounts []v1.VolumeMountStatus, ids map[string]string) {
	for i := range mounts {
		id, is := ids[mounts[i].Name]
		if !is {
			continue
		}
		if _, digest, named := strings.Cut(id, "@"); named && len(id) > mostImageRef {
			id = digest
		}
		mounts[i].VolumeStatus = &v1.VolumeStatus{Image: &v1.ImageVolumeStatus{ImageRef: id}}
	}
}

// removed returns the terminated state of an instance that something other than podrun removed.
// Exit code and reason are those that the kubelet sets for a container that it cannot find.
func removed(c pod.Container) *v1.ContainerStateTerminated {
	c.ExitCode, c.Reason, c.Message = 137, pod.ReasonLost, "The container was removed by something other than podrun."
	return terminated(c)
}

// ended returns the exited instance with the given attempt, or else the newest one before it.
func ended(o pod.Observed, uid pod.UID, name string, attempt int) (pod.Container, bool) {
	var best pod.Container
	found := false
	for _, c := range o.Containers {
		if c.UID == uid && c.Name == name && c.State == pod.Exited && c.Attempt <= attempt &&
			(!found || c.Attempt > best.Attempt) {
			best, found = c, true
		}
	}
	return best, found
}

func containerID(c pod.Container) string { return "containerd://" + c.ID }

func terminated(c pod.Container) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		ExitCode: int32(c.ExitCode), Reason: cmp.Or(c.Reason, pod.ExitReason(c.ExitCode, false)), Message: c.Message,
		StartedAt: seconds(c.StartedAt), FinishedAt: seconds(c.FinishedAt), ContainerID: containerID(c),
	}
}

// seconds drops fractions of a second, which Kubernetes' JSON cannot represent, so that a status
// that is read back equals the one that was written.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.Time{Time: t.Truncate(time.Second)}
}

// messagesLimit is the maximum length in bytes of the messages of a pod's containers together, as
// in Kubernetes.
const messagesLimit = 12 << 10

// limitMessages cuts each container's messages to an equal share of messagesLimit.
func limitMessages(s *v1.PodStatus) {
	all := len(s.InitContainerStatuses) + len(s.ContainerStatuses)
	for _, of := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range of {
			for _, t := range []*v1.ContainerStateTerminated{
				of[i].State.Terminated,
				of[i].LastTerminationState.Terminated,
			} {
				if t != nil && len(t.Message) > messagesLimit/all {
					t.Message = strings.ToValidUTF8(t.Message[:messagesLimit/all], "")
				}
			}
		}
	}
}
