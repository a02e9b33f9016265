// Package status words what was seen and judged as Kubernetes words a pod's status. Of is pure; Files
// keeps the answers where they can be read while nothing of podrun runs. It decides nothing.
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

// Input is what a status rests on.
type Input struct {
	Pod      *v1.Pod
	Observed pod.Observed
	Plan     plan.Plan
	// Probed tells, per instance ID, what probes have found.
	Probed map[string]pod.Probed
	// HostIP is the node's address, empty when not known.
	HostIP string
	// Before are the conditions that were shown last of this revision; nil: none were. From them come the times at
	// which conditions that still are became so.
	Before []v1.PodCondition
	Now    time.Time
}

// Of returns the status of the wanted revision.
func Of(in Input) v1.PodStatus {
	mine, _ := in.Observed.Split(in.Pod.UID)
	// An instance that never ran is no restart: the one before it is what there is to show.
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
	s.Phase = phase(in.Pod, s, in.Plan.Completed)
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
	return s
}

// setIPs shows the addresses that the pod has, or had last.
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
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image}
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
		s.RestartCount-- // it has not been restarted yet, and may not be
	}
	s.ImageID = last.ImageID
	s.ContainerID = containerID(last)
	if last.StopSignal != "" {
		s.StopSignal = new(v1.Signal(last.StopSignal))
	}
	running := last.State == pod.Running && !lost
	s.AllocatedResources, s.Resources = c.Resources.Requests, c.Resources.DeepCopy()
	if running {
		s.Resources = new(pod.RunsWith(c, last.Resources))
	}
	started := running && in.Probed[last.ID].IsStarted(c)
	s.Started, s.Ready = &started, running && in.Probed[last.ID].IsReady(c) && !in.Plan.Again // then it is of the run before
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

// removed stands for the end of an instance that somebody else removed; code and reason are the kubelet's
// for one that it cannot find.
func removed(c pod.Container) *v1.ContainerStateTerminated {
	c.ExitCode, c.Reason, c.Message = 137, pod.ReasonLost, "The container was removed by somebody else than podrun."
	return terminated(c)
}

// ended finds the exited instance of the given attempt, or the newest before it.
func ended(o pod.Observed, uid pod.UID, name string, attempt int) (pod.Container, bool) {
	var best pod.Container
	found := false
	for _, c := range o.Containers {
		if c.UID == uid && c.Name == name && c.State == pod.Exited && c.Attempt <= attempt && (!found || c.Attempt > best.Attempt) {
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

// seconds drops what Kubernetes' JSON cannot hold, so that a status read back equals the one written.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.Time{Time: t.Truncate(time.Second)}
}

// messagesLimit is how long the messages of a pod's containers may be together, in bytes, as in Kubernetes.
const messagesLimit = 12 << 10

// limitMessages gives each container its share.
func limitMessages(s *v1.PodStatus) {
	all := len(s.InitContainerStatuses) + len(s.ContainerStatuses)
	for _, of := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range of {
			for _, t := range []*v1.ContainerStateTerminated{of[i].State.Terminated, of[i].LastTerminationState.Terminated} {
				if t != nil && len(t.Message) > messagesLimit/all {
					t.Message = strings.ToValidUTF8(t.Message[:messagesLimit/all], "")
				}
			}
		}
	}
}
