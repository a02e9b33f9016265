package result

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// pullPoll is how often pulls are checked.
const pullPoll = time.Second

// pulls limits how long pods wait for images that cannot be pulled. The pull of a large image may
// take as long as it needs, as long as data arrives.
type pulls struct {
	// progress returns the progress of the pull of an image; ok is false if none is going on.
	progress func(image string) (p pod.Progress, ok bool)
	// waiting are the pods that wait for an image.
	waiting map[pod.Key]pulling
	// fetched is how much had been fetched of all images at the last check.
	fetched int64
}

// pulling is a pod that waits for images.
type pulling struct {
	since   time.Time // when the last data arrived, or when the first attempt failed
	failing bool
}

func newPulls() pulls {
	return pulls{
		progress: func(string) (pod.Progress, bool) { return pod.Progress{}, false },
		waiting:  map[pod.Key]pulling{},
	}
}

// WatchPulls sets the function that returns the progress of the pull of an image.
func (c *Collector) WatchPulls(progress func(image string) (pod.Progress, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulls.progress = progress
}

// check adds those of the pods to stuck that have waited for an image for limit. It reports whether any
// pod waits for one.
func (u *pulls) check(pods map[pod.Key]*v1.Pod, limit time.Duration, stuck map[pod.Key]error) (waits bool) {
	fetched := u.fetched
	u.fetched = 0
	awaited := map[pod.Key]string{}
	for key, p := range pods {
		awaited[key] = u.awaited(p)
	}
	moves := u.fetched > fetched
	for key, image := range awaited {
		was, known := u.waiting[key]
		failure := pullFailure(pods[key])
		switch {
		case image == "" && failure == "":
			delete(u.waiting, key)
			continue
		case !known || moves && !was.failing, failure != "" && !was.failing:
			was.since = time.Now()
		}
		was.failing = was.failing && !moves || failure != ""
		u.waiting[key], waits = was, true
		if time.Since(was.since) >= limit && stuck[key] == nil {
			stuck[key] = pullTimeout(image, failure, limit)
		}
	}
	return waits
}

// awaited returns an image of p that is being pulled, or "", and counts what has been fetched.
func (u *pulls) awaited(p *v1.Pod) (image string) {
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return ""
	}
	count := func(ref string) {
		if now, pulls := u.progress(ref); pulls {
			image, u.fetched = ref, u.fetched+now.Fetched
		}
	}
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			count(containers[i].Image)
		}
	}
	for i := range p.Spec.Volumes {
		if v := p.Spec.Volumes[i].Image; v != nil {
			count(v.Reference)
		}
	}
	return image
}

// pullFailure returns why the last pull for p failed; "" if it did not.
func pullFailure(p *v1.Pod) string {
	for _, s := range statuses(p) {
		w := s.State.Waiting
		if w != nil && (w.Reason == plan.ReasonErrImagePull || w.Reason == plan.ReasonImagePullBackOff) {
			return strings.TrimSpace(w.Reason + ": " + w.Message)
		}
	}
	return ""
}

// pullTimeout returns the error for an image that could not be pulled within limit.
func pullTimeout(image, failure string, limit time.Duration) error {
	if failure != "" {
		return fmt.Errorf("its image cannot be pulled within %s (--pull-timeout): %s", limit, failure)
	}
	return fmt.Errorf("the pull of image %q has made no progress for %s (--pull-timeout)", image, limit)
}
