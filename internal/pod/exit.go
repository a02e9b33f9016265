package pod

// The reasons of an exit, as Kubernetes spells them.
const (
	ReasonCompleted = "Completed"
	ReasonError     = "Error"
	ReasonOOMKilled = "OOMKilled"
	// ReasonLost is the reason of an exit that nobody observed, wherever that is noticed: the
	// kubelet's ContainerReasonStatusUnknown.
	ReasonLost = "ContainerStatusUnknown"
)

// ReasonFailedMount is the kubelet's reason for a volume that cannot be mounted.
const ReasonFailedMount = "FailedMount"

// ReasonKillPod is the kubelet's reason for a pod, or its sandbox, that cannot be removed.
const ReasonKillPod = "FailedKillPod"

// ExitReason returns the reason of an exit with code. oom reports that the kernel killed a process
// of this instance for lack of memory. The reason is then ReasonOOMKilled whatever the code is,
// because the main process can outlive the killed one and exit with any code, even 0. containerd's
// CRI plugin reports the same to the kubelet: OOMKilled as soon as it receives a TaskOOM event of
// the container (internal/cri/server/events.go); only without one does it derive the reason from
// the code (container_status.go).
func ExitReason(code int, oom bool) string {
	switch {
	case oom:
		return ReasonOOMKilled
	case code == 0:
		return ReasonCompleted
	default:
		return ReasonError
	}
}
