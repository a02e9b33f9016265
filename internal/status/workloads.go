package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/revisions"
)

// Workload is a workload of serve, as it is saved for commands.
type Workload struct {
	Kind      workload.Kind `json:"kind"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	// Pods are the full names of its pods.
	Pods []string `json:"pods"`
	// Hash is manifest.ManifestHash of pods that run its template.
	Hash string `json:"hash"`
	// Manifest is the path of the manifest; "" if it is no file.
	Manifest string `json:"manifest,omitempty"`
	// Seen is when the template was first read, or when the run of a Job began, RFC 3339.
	Seen string `json:"seen"`
	// Since is when a document of this kind and name was first read, or when the run of a Job began, RFC 3339.
	Since string `json:"since"`
	// Outcome is what is recorded of the revision that the manifest has; nil: nothing.
	Outcome *revisions.Outcome `json:"outcome,omitempty"`
	Object  json.RawMessage    `json:"object"`
}

// WorkloadsFile is the file with the workloads of what serve runs. It is output: no decision depends on it.
type WorkloadsFile struct {
	file sys.ChangedFile
	// since has Workload.Since.
	since map[workload.ID]string
}

// NewWorkloadsFile returns the file at path. Ages go on from what it has.
func NewWorkloadsFile(path string) *WorkloadsFile {
	f := &WorkloadsFile{sys.ChangedFile{Path: path}, map[workload.ID]string{}}
	former, _ := readWorkloads(path) // else they begin anew
	for _, w := range former {
		f.since[w.id()] = w.Since
	}
	return f
}

func (w Workload) id() workload.ID {
	return workload.ID{Kind: w.Kind, Key: pod.Key{Namespace: w.Namespace, Name: w.Name}}
}

// Write replaces the file if its contents change.
func (f *WorkloadsFile) Write(d manifest.Desired) error {
	saved := []Workload{}
	for _, w := range d.Workloads {
		one, err := workloadOf(w, d)
		if err != nil {
			return err
		}
		one.Since = one.Seen
		if first := f.since[w.ID]; first != "" && !w.MakesJobs() {
			one.Since = first
		}
		saved = append(saved, one)
	}
	if d.Complete { // else others may be in a manifest that has not been read yet
		clear(f.since)
	}
	for _, one := range saved {
		f.since[one.id()] = one.Since
	}
	text, err := json.Marshal(saved)
	if err == nil {
		err = f.file.Write(text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("saving workloads: %w", err)
	}
	return nil
}

// Summarize counts the pods of the workload. object is its document, and pods are those that exist of it.
func (w Workload) Summarize(object runtime.Object, pods []*v1.Pod, now time.Time) workload.Summary {
	seen, _ := time.Parse(time.RFC3339, w.Seen) // else it is not known
	return workload.Summarize(workload.State{
		Object: object, Desired: len(w.Pods), Pods: pods, Hash: w.Hash, HashOf: manifest.ManifestHash, Seen: seen,
		Outcome: w.Outcome, Now: now,
	})
}

// workloadOf returns a workload as it is saved. That of a Job has its status and the pods of its run.
func workloadOf(w *workload.Workload, d manifest.Desired) (Workload, error) {
	one := Workload{
		Kind: w.Kind, Namespace: w.Key.Namespace, Name: w.Key.Name, Pods: []string{},
		Hash: manifest.ManifestHash(w.Template), Outcome: w.Outcome(d.Histories, manifest.ManifestHash),
		Seen: w.Template.Annotations[manifest.AnnotationSeen], Manifest: manifest.OriginOf(w.Template).Path,
	}
	object := w.Object
	switch o := object.(type) {
	case *batchv1.CronJob:
		object = cronJob(o, w, d, &one)
	case *batchv1.Job:
		job := o.DeepCopy()
		if history := d.Jobs[w.ID]; history != nil {
			job.Status, job.UID = history.Status, types.UID(history.Run)
			if began := history.Began; !began.IsZero() {
				one.Seen = began.UTC().Format(time.RFC3339)
			} else if began := history.Status.StartTime; began != nil {
				one.Seen = began.UTC().Format(time.RFC3339)
			}
			for _, t := range history.Tries {
				one.Pods = append(one.Pods, t.Name+w.Suffix)
			}
		}
		object = job
	default:
		for _, name := range w.Names() {
			one.Pods = append(one.Pods, name+w.Suffix)
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return Workload{}, fmt.Errorf("encoding %s: %w", w, err)
	}
	one.Object = text
	return one, nil
}

// cronJob returns a CronJob with its status. It adds the pods of its Jobs to one, and since when it is.
func cronJob(c *batchv1.CronJob, w *workload.Workload, d manifest.Desired, one *Workload) *batchv1.CronJob {
	history := d.CronJobs[w.ID]
	if history == nil {
		return c
	}
	c = c.DeepCopy()
	c.UID = types.UID(history.UID)
	if !history.Created.IsZero() {
		one.Seen = history.Created.UTC().Format(time.RFC3339)
	}
	cronjobs.SetStatus(c, history, func(job string) string {
		if run := d.Jobs[w.ID.Job(job)]; run != nil {
			return run.Run
		}
		return ""
	})
	for _, id := range w.ID.Made(history) {
		if run := d.Jobs[id]; run != nil {
			for _, t := range run.Tries {
				one.Pods = append(one.Pods, t.Name+w.Suffix)
			}
		}
	}
	return c
}

// Labels returns the labels of the document; none if it cannot be read.
func (w Workload) Labels() labels.Set {
	var about metav1.PartialObjectMetadata
	if json.Unmarshal(w.Object, &about) != nil {
		return nil
	}
	return about.Labels
}

// Job returns the Job that is saved; nil if it is none.
func (w Workload) Job() *batchv1.Job {
	job := &batchv1.Job{}
	if w.Kind != workload.Job || json.Unmarshal(w.Object, job) != nil {
		return nil
	}
	return job
}

// CronJob returns the CronJob that is saved; nil if it is none.
func (w Workload) CronJob() *batchv1.CronJob {
	c := &batchv1.CronJob{}
	if w.Kind != workload.CronJob || json.Unmarshal(w.Object, c) != nil {
		return nil
	}
	return c
}

// Documents returns the documents of the workloads of the serve that runs, or ran last.
func Documents(dirs layout.Dirs) (map[workload.ID]json.RawMessage, error) {
	saved, err := Workloads(dirs)
	all := map[workload.ID]json.RawMessage{}
	for _, w := range saved {
		all[w.id()] = w.Object
	}
	return all, err
}

// Workloads returns the workloads of the serve that runs, or ran last.
func Workloads(dirs layout.Dirs) ([]Workload, error) {
	return readWorkloads(dirs.StatusFiles().Workloads())
}

func readWorkloads(path string) ([]Workload, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !json.Valid(text) { // the latter is of an earlier boot
		return nil, nil
	}
	var all []Workload
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("reading workloads: %w", err)
	}
	return all, nil
}
