package plan

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	firstBackoff   = 10 * time.Second
	longestBackoff = 5 * time.Minute
	// goodRun is how long an instance runs that has the back-off begin anew, whatever the longest pause is: the 600 s
	// of the HasExpiredFunc that the kubelet gives its back-off (pkg/kubelet/kubelet.go, NewMainKubelet).
	goodRun = 10 * time.Minute
)

func maxBackoff(limit time.Duration) time.Duration {
	if limit <= 0 {
		return longestBackoff
	}
	return limit
}

// backoff is the pause after the end of an instance that was started at the given step: none after the
// first, then 10 s, doubling up to limit, as the kubelet's crash loop does it.
func backoff(step int, limit time.Duration) time.Duration {
	if step == 0 {
		return 0
	}
	return doubled(firstBackoff, step-1, maxBackoff(limit))
}

// doubled is first × 2^n, at most limit.
func doubled(first time.Duration, n int, limit time.Duration) time.Duration {
	d := first
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// The reasons of an image that cannot be had.
const (
	ReasonErrImagePull      = "ErrImagePull"
	ReasonImagePullBackOff  = "ImagePullBackOff"
	ReasonErrImageNeverPull = "ErrImageNeverPull"
)

// retryDelay is the pause after a failed attempt that left no instance: as the kubelet's for pulls, and
// shorter for what may be mended on this machine at any moment.
func retryDelay(f Failure) time.Duration {
	switch f.Reason {
	case ReasonErrImagePull:
		return doubled(firstBackoff, f.Count-1, longestBackoff)
	default:
		return doubled(time.Second, f.Count-1, firstBackoff)
	}
}

// ReasonFailedSandbox is the reason of a sandbox's failure that has none of its own.
const ReasonFailedSandbox = "FailedCreatePodSandBox"

// waitingForSandbox words a failure of the sandbox. As in Kubernetes the containers are merely being
// created, unless it is known what is missing.
func waitingForSandbox(f Failure, notYet Waiting) Waiting {
	if f.Reason == ReasonFailedSandbox {
		return Waiting{Reason: notYet.Reason, Message: f.Message}
	}
	return Waiting{Reason: f.Reason, Message: f.Message}
}

// waitingAfter words a failure as a status shows it.
func waitingAfter(f Failure, c *v1.Container) Waiting {
	if f.Reason == ReasonErrImagePull && f.Count > 1 {
		return Waiting{Reason: ReasonImagePullBackOff, Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", c.Image, f.Reason, strings.TrimSpace(f.Message))}
	}
	return Waiting{Reason: f.Reason, Message: f.Message}
}
