// Package query reads the pods of the run directory from their status files and selects pods,
// containers and events by what the user gives on the command line.
//
// Begin reading at Reader.
package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// Owners reports which processes own pods. owner.Reader implements it.
type Owners interface {
	// Kept reports whether a process owns the pod. known is false if that cannot be said.
	Kept(key pod.Key) (owned, known bool)
	// LastKept returns until when the last serve owned the pod, if no process owns it now and that
	// serve has ended. It returns the zero time if the last owner was not a serve, or is not known.
	LastKept(key pod.Key) time.Time
	// LastSeen returns until when the statuses were kept up to date, and whether they still are.
	LastSeen() (at time.Time, alive bool)
	// JustBegun reports whether a podrun serve has started less than ago ago.
	JustBegun(ago time.Duration) bool
}

// Reader reads pods from their status files.
type Reader struct {
	Dirs   layout.Dirs
	Owners Owners
	Log    *slog.Logger
}

// handoverTime is the time in which a running podrun acquires a pod that another process has
// released, or that it was started to run.
const handoverTime = time.Second

// Settled returns the pods as Pods does. If a pod has lost its owner a moment ago, or a
// serve has just started, it waits for handoverTime and reads the pods again, provided that a
// podrun is running. So a pod that passes from one process to another is not shown as Unowned.
func (r *Reader) Settled() ([]*v1.Pod, error) {
	pods, err := r.Pods()
	justStarted := r.Owners.JustBegun(3 * handoverTime)
	passing := func(p *v1.Pod) bool { return status.IsUnowned(p) && (justStarted || recentlyReleased(p)) }
	if err != nil || !slices.ContainsFunc(pods, passing) {
		return pods, err
	}
	if _, alive := r.Owners.LastSeen(); !alive {
		return pods, nil
	}
	time.Sleep(handoverTime)
	return r.Pods()
}

// recentlyReleased reports whether the pod, which has no owner now, had one a moment ago.
func recentlyReleased(p *v1.Pod) bool {
	return time.Since(status.UnownedSince(p)) < 3*handoverTime
}

// Pods returns the pods of all status files, sorted by namespace and name. It returns none if
// podrun never ran. Pods that no process owns get the reason Unowned.
func (r *Reader) Pods() ([]*v1.Pod, error) {
	entries, err := os.ReadDir(r.Dirs.StatusFiles().Dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading status files: %w", err)
	}
	var pods []*v1.Pod
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		p, err := ReadPod(filepath.Join(r.Dirs.StatusFiles().Dir(), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed in the meantime
		}
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	if pods, err = r.mergeNotOwned(pods); err != nil {
		return nil, err
	}
	if pods, err = r.markUnowned(pods); err != nil {
		return nil, err
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return pods, nil
}

// mergeNotOwned merges the pods that serve wants to run but that another process owns. If such a pod
// has a status already, its reason and message are replaced by those of serve, which name the
// owner; otherwise the pod is added.
func (r *Reader) mergeNotOwned(pods []*v1.Pod) ([]*v1.Pod, error) {
	notes, err := filepath.Glob(filepath.Join(r.Dirs.StatusFiles().Dir(), "*"+layout.SuffixNotOwned))
	if err != nil {
		return nil, err
	}
	for _, path := range notes {
		note, err := ReadPod(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		same := func(p *v1.Pod) bool { return pod.KeyOf(p) == pod.KeyOf(note) }
		if i := slices.IndexFunc(pods, same); i >= 0 {
			pods[i].Status.Reason, pods[i].Status.Message = note.Status.Reason, note.Status.Message
			continue
		}
		pods = append(pods, note)
	}
	return pods, nil
}

// Waiting returns the pods that a process has, or serve wants to have, and that have not ended.
func (r *Reader) Waiting() ([]*v1.Pod, error) {
	pods, err := r.Settled()
	return WaitingOf(pods), err
}

// WaitingOf returns those of the pods that Waiting returns.
func WaitingOf(pods []*v1.Pod) (waiting []*v1.Pod) {
	for _, p := range pods {
		if !status.IsUnowned(p) && !status.Ended(p) {
			waiting = append(waiting, p)
		}
	}
	return waiting
}

// markUnowned sets the reason Unowned for the pods that have not ended and that no process owns.
func (r *Reader) markUnowned(pods []*v1.Pod) ([]*v1.Pod, error) {
	var all []*v1.Pod
	for _, p := range pods {
		key := pod.KeyOf(p)
		if owned, known := r.Owners.Kept(key); !owned && known && !status.Ended(p) {
			var err error
			// The status is read again, because the owner may have written it after it was read and
			// before the process ended.
			last := r.Owners.LastKept(key)
			if p, err = readUnowned(r.Dirs.StatusFiles().Pod(key), last); errors.Is(err, fs.ErrNotExist) {
				p, err = readUnowned(r.Dirs.StatusFiles().NotOwned(key), last)
			}
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed in the meantime
			}
			if err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// readUnowned reads the status of a pod that no process owns and sets its reason to Unowned, with
// the time of the last status: the later of last and the modification time of the file.
func readUnowned(path string, last time.Time) (*v1.Pod, error) {
	p, err := ReadPod(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading status file: %w", err)
	}
	if last.Before(info.ModTime()) {
		last = info.ModTime()
	}
	status.SetUnowned(p, last)
	return p, nil
}

// ReadPod reads a status file. One that a loss of power has left incomplete is fs.ErrNotExist.
func ReadPod(path string) (*v1.Pod, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading status file: %w", err)
	}
	var p v1.Pod
	if err := json.Unmarshal(b, &p); err != nil {
		if !json.Valid(b) {
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		return nil, fmt.Errorf("status file %s: %w", path, err)
	}
	p.APIVersion, p.Kind = "v1", "Pod"
	return &p, nil
}
