package containerd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/core/containers"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images"
)

// The labels of podrun's containers. Kubernetes' tools know the first four.
const (
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodUID       = "io.kubernetes.pod.uid"
	labelContainer    = "io.kubernetes.container.name"

	labelAttempt    = "podrun.io/attempt"
	labelBackoff    = "podrun.io/backoff"
	labelBoot       = "podrun.io/boot"
	labelSandbox    = "podrun.io/sandbox"
	labelGrace      = "podrun.io/grace"
	labelImage      = "podrun.io/image"
	labelImageID    = images.LabelImageID
	labelOwner      = "podrun.io/owner"
	labelPreStop    = "podrun.io/pre-stop"
	labelResources  = "podrun.io/resources"
	labelRound      = "podrun.io/round"
	labelSidecar    = "podrun.io/sidecar"
	labelStdin      = "podrun.io/stdin"
	labelStopSignal = "podrun.io/stop-signal"
	// labelGeneration is on instances only whose start had been cut off before; see supersede.
	labelGeneration = "podrun.io/generation"

	// The exit labels are written together, before the task that they are about is deleted.
	labelExitCode   = "podrun.io/exit-code"
	labelFinishedAt = "podrun.io/finished-at"
	labelReason     = "podrun.io/reason"
	labelMessage    = "podrun.io/message"
	// labelMessageMore has what of the message does not fit in one label.
	labelMessageMore = "podrun.io/message-2"
)

// Reasons of an exit, as Kubernetes spells them.
const (
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOM        = "OOMKilled"
	reasonStartError = "StartError"
	reasonLost       = pod.ReasonLost
)

// Exit codes that no process gave.
const (
	exitStartError = 128
	exitLost       = 255
	exitKilled     = 137
)

// containerID names an instance: the same pod, revision, container, attempt and generation always give
// the same 32 hex digits, so that a start that is repeated finds what the first left.
func containerID(i pod.Instance, generation int) string {
	parts := []string{i.Key.Namespace, i.Key.Name, string(i.UID), i.Container, strconv.Itoa(i.Attempt), strconv.Itoa(generation)}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// earlier are the IDs of the generations before the one that carries the labels, latest first.
func earlier(labels map[string]string) []string {
	attempt, _ := strconv.Atoi(labels[labelAttempt])
	i := pod.Instance{Key: keyOf(labels), UID: pod.UID(labels[labelPodUID]), Container: labels[labelContainer], Attempt: attempt}
	var out []string
	for n := generation(labels) - 1; n >= 0; n-- {
		out = append(out, containerID(i, n))
	}
	return out
}

func generation(labels map[string]string) int {
	n, _ := strconv.Atoi(labels[labelGeneration]) // absent: 0
	return min(n, maxGenerations)
}

func instanceOf(s runtime.Start) pod.Instance {
	return pod.Instance{Key: pod.KeyOf(s.Pod), UID: s.Pod.UID, Container: s.Container.Name, Attempt: s.Attempt}
}

// startLabels are those that an instance is made with.
func (r *Runtime) startLabels(l *launch) map[string]string {
	s := l.Start
	labels := map[string]string{
		labelPodName:      s.Pod.Name,
		labelPodNamespace: s.Pod.Namespace,
		labelPodUID:       string(s.Pod.UID),
		labelContainer:    s.Container.Name,
		labelAttempt:      strconv.Itoa(s.Attempt),
		labelBackoff:      strconv.Itoa(s.Backoff),
		labelBoot:         r.boot,
		labelSandbox:      s.Sandbox.ID,
		labelImage:        s.Container.Image,
		labelImageID:      s.Image.ID,
		labelOwner:        r.Owner,
		labelResources:    pod.ResourcesOf(s.Pod, s.Container),
		labelStdin:        stdinKind(s.Container),
		labelStopSignal:   l.image.Config.StopSignal,
	}
	if order := pod.SidecarOrder(s.Pod, s.Container.Name); order > 0 {
		labels[labelSidecar] = strconv.Itoa(order)
	}
	if hooks := s.Container.Lifecycle; hooks != nil {
		if hooks.PreStop != nil {
			labels[labelPreStop] = "yes"
		}
		if hooks.StopSignal != nil {
			labels[labelStopSignal] = string(*hooks.StopSignal)
		}
	}
	if s.Round > 0 {
		labels[labelRound] = strconv.Itoa(s.Round)
	}
	if l.generation > 0 {
		labels[labelGeneration] = strconv.Itoa(l.generation)
	}
	if grace := s.Pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		labels[labelGrace] = (time.Duration(*grace) * time.Second).String()
	}
	for key, value := range labels {
		if value == "" {
			delete(labels, key)
		}
	}
	return labels
}

// exit is how an instance ended.
type exit struct {
	code            int
	at              time.Time
	reason, message string
}

// reasonFor is the reason of an exit of which only the code is known.
func reasonFor(code int, oom bool) string {
	switch {
	case code == 0:
		return reasonCompleted
	case code == exitKilled && oom:
		return reasonOOM
	default:
		return reasonError
	}
}

func (e exit) labels() map[string]string {
	labels := map[string]string{
		labelExitCode:   strconv.Itoa(e.code),
		labelFinishedAt: e.at.UTC().Format(time.RFC3339Nano),
		labelReason:     e.reason,
	}
	if e.message != "" {
		message := strings.ToValidUTF8(e.message, "�")
		labels[labelMessage] = cut(message, daemon.LabelLimit-len(labelMessage))
		if more := message[len(labels[labelMessage]):]; more != "" {
			labels[labelMessageMore] = cut(more, daemon.LabelLimit-len(labelMessageMore))
		}
	}
	return labels
}

// cut shortens s, which is UTF-8, to at most n bytes, at a character's end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// exitOf reads the exit labels.
func exitOf(labels map[string]string) (exit, bool) {
	code, err := strconv.Atoi(labels[labelExitCode])
	if err != nil {
		return exit{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, labels[labelFinishedAt])
	if err != nil {
		return exit{}, false
	}
	return exit{code: code, at: at, reason: labels[labelReason], message: labels[labelMessage] + labels[labelMessageMore]}, true
}

// ours reports that podrun made the container.
func ours(labels map[string]string) bool {
	_, err := strconv.Atoi(labels[labelAttempt])
	return err == nil && labels[labelPodName] != "" && labels[labelPodUID] != "" && labels[labelContainer] != ""
}

func keyOf(labels map[string]string) pod.Key {
	return pod.Key{Namespace: labels[labelPodNamespace], Name: labels[labelPodName]}
}

// record is what the labels say of an instance; its state is not among it.
func record(c containers.Container) pod.Container {
	l := c.Labels
	attempt, _ := strconv.Atoi(l[labelAttempt]) // ours has checked it
	backoff, _ := strconv.Atoi(l[labelBackoff]) // absent: 0
	sidecar, _ := strconv.Atoi(l[labelSidecar]) // absent: 0
	round, _ := strconv.Atoi(l[labelRound])     // absent: 0
	grace, _ := time.ParseDuration(l[labelGrace])
	return pod.Container{
		ID: c.ID, Name: l[labelContainer], UID: pod.UID(l[labelPodUID]), SandboxID: l[labelSandbox],
		Attempt: attempt, Backoff: backoff, Round: round, Boot: l[labelBoot], Grace: grace,
		Image: l[labelImage], ImageID: l[labelImageID], Sidecar: sidecar, Resources: l[labelResources],
		PreStop: l[labelPreStop] != "", StopSignal: signalName(l[labelStopSignal]),
	}
}

// keyFilter selects a pod's containers in containerd's filter language.
func keyFilter(key pod.Key) string {
	return fmt.Sprintf("labels.%q==%q,labels.%q==%q", labelPodNamespace, key.Namespace, labelPodName, key.Name)
}

// signalName spells a signal, which images give by number or name, as Kubernetes does.
func signalName(s string) string {
	if n, err := strconv.Atoi(s); err == nil {
		return unix.SignalName(syscall.Signal(n))
	}
	if s = strings.ToUpper(s); s != "" && !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	return s
}
