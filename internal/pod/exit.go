package pod

// The reasons of an exit, as Kubernetes spells them.
const (
	ReasonCompleted = "Completed"
	ReasonError     = "Error"
	ReasonOOMKilled = "OOMKilled"
	// ReasonLost is that of an exit that nobody saw, wherever it is noticed: the kubelet's ContainerReasonStatusUnknown.
	ReasonLost = "ContainerStatusUnknown"
)

// ExitReason is the reason of an exit with code. oom says that the kernel killed in this instance for want of memory:
// that is the reason then whatever the code is, because the main process may outlive the one that was killed, and
// end as it likes, even well. That is how containerd's CRI plugin answers the kubelet: its reason is OOMKilled as soon as
// it hears of a container's TaskOOM (internal/cri/server/events.go), and only without one is it read off the code
// (container_status.go).
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
