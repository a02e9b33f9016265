package plan

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

const (
	firstBackoff   = 10 * time.Second
	longestBackoff = 5 * time.Minute
	// backoffReset is how long an instance has to run to reset the crash back-off, whatever the longest back-off is:
	// the 600 s of the HasExpiredFunc that the kubelet gives its back-off (pkg/kubelet/kubelet.go, NewMainKubelet).
	backoffReset = 10 * time.Minute
)

func maxBackoff(limit time.Duration) time.Duration {
	if limit <= 0 {
		return longestBackoff
	}
	return limit
}

// backoff returns the pause after the exit of an instance that was started at the given back-off step: none after step
// 0, then 10 s, doubled with each step up to limit, as the kubelet's crash loop does it.
func backoff(step int, limit time.Duration) time.Duration {
	if step == 0 {
		return 0
	}
	return doubled(firstBackoff, step-1, maxBackoff(limit))
}

// doubled returns first × 2^n, at most limit.
func doubled(first time.Duration, n int, limit time.Duration) time.Duration {
	d := first
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// ReasonCrashLoopBackOff is the reason of a container that waits to be restarted.
const ReasonCrashLoopBackOff = "CrashLoopBackOff"

// The reasons of an image that is not available.
const (
	ReasonErrImagePull      = "ErrImagePull"
	ReasonImagePullBackOff  = "ImagePullBackOff"
	ReasonErrImageNeverPull = "ErrImageNeverPull"
)

// retryDelay returns the pause after a failed attempt that left no instance. Image pulls follow the kubelet's back-off;
// other failures have a shorter one, because their cause can be repaired on this machine at any moment.
func retryDelay(f Failure) time.Duration {
	switch f.Reason {
	case ReasonErrImagePull:
		return doubled(firstBackoff, f.Count-1, longestBackoff)
	default:
		return doubled(time.Second, f.Count-1, firstBackoff)
	}
}

// untilRetry returns how long the failed operation with the key in Failures is not tried again; 0 or
// less if it can be tried now, as if it has not failed.
func (in Input) untilRetry(key string) time.Duration {
	f, failed := in.Failures[key]
	if !failed {
		return 0
	}
	return retryDelay(f) - in.Now.Sub(f.At)
}

// waitingAfter returns the waiting state that the status shows after f. As in Kubernetes, a container
// whose volume is not mounted is only not created yet: its reason is that of notYet.
func waitingAfter(f Failure, c *v1.Container, notYet Waiting) Waiting {
	switch {
	case f.Reason == ReasonErrImagePull && f.Count > 1:
		return Waiting{
			Reason:  ReasonImagePullBackOff,
			Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", c.Image, f.Reason, strings.TrimSpace(f.Message)),
		}
	case f.Reason == pod.ReasonFailedMount:
		return Waiting{Reason: notYet.Reason, Message: f.Message}
	}
	return Waiting{Reason: f.Reason, Message: f.Message}
}
