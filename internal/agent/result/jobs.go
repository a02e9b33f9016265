package result

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

// Job is what has become of a Job of a run.
type Job struct {
	workload.ID
	// At is the key by which other pods start after the Job.
	At pod.Key
	// Manifest is the path of its manifest.
	Manifest string
	// Spec is the Job as its manifest has it, with its defaults, and Status what has become of it.
	Spec   *batchv1.Job
	Status batchv1.JobStatus
}

// Finished reports that the Job is Complete or has Failed.
func (j Job) Finished() bool { return jobs.Finished(&j.Status) != nil }

// Failed returns the condition Failed of the Job; nil if it has not failed.
func (j Job) Failed() *batchv1.JobCondition {
	if c := jobs.Finished(&j.Status); c != nil && c.Type == batchv1.JobFailed {
		return c
	}
	return nil
}

// jobsOf returns the Jobs of a desired set, in its order.
func jobsOf(d manifest.Desired) (all []Job) {
	for _, w := range d.Workloads {
		spec, is := w.Object.(*batchv1.Job)
		if !is {
			continue
		}
		j := Job{ID: w.ID, At: pod.KeyOf(w.Template), Spec: spec, Manifest: manifest.OriginOf(w.Template).Path}
		if history := d.Jobs[w.ID]; history != nil {
			j.Status = history.Status
		}
		all = append(all, j)
	}
	return all
}

// JobOf returns the Job of the run that a pod belongs to, and whether it belongs to one.
func (r Result) JobOf(p *v1.Pod) (Job, bool) {
	of, is := workload.Of(p)
	if !is {
		return Job{}, false
	}
	i := slices.IndexFunc(r.Jobs, func(j Job) bool { return j.ID == of })
	if i < 0 {
		return Job{}, false
	}
	return r.Jobs[i], true
}

// jobsDone reports that each Job has its result, or never will because another pod has failed.
func (r Result) jobsDone(stranded map[pod.Key]bool) bool {
	return !slices.ContainsFunc(r.Jobs, func(j Job) bool { return !j.Finished() && !stranded[j.At] })
}

// SetDesired records what is desired from now on, before any pod of it is acted on. It changes as Jobs go on.
func (c *Collector) SetDesired(d manifest.Desired) {
	c.mu.Lock()
	c.desired = d
	c.mu.Unlock()
	c.notify()
}

// Desired returns what is desired now.
func (c *Collector) Desired() manifest.Desired {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.desired
}
