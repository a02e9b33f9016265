package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
	"podrun.io/podrun/internal/workload/revisions"
)

// load makes a store keep the runs of Jobs, and reads those that it has. For a Job whose run cannot be
// read nothing is done: it may have run.
func (r *Record) load(store *checkpoint.Store) error {
	stored, err := store.Runs()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store, r.reread = store, time.Now()
	for _, one := range stored {
		id := idOf(one)
		if err := r.read(id, one); err != nil {
			r.frozen[id] = true
			text := "the record of a Job's run cannot be read: nothing is done for the Job; remove the file to run it again"
			if isTried(id.Kind) {
				text = "the record of revisions cannot be read: none is rolled back; remove the file to record them anew"
			}
			r.log.Error(text, "kind", id.Kind, "name", id.Key, "file", store.RunPath(one), "err", err)
		}
	}
	return nil
}

func idOf(one checkpoint.Run) workload.ID {
	return workload.ID{
		Kind: workload.Kind(cmp.Or(one.Kind, string(workload.Job))),
		Key:  pod.Key{Namespace: one.Namespace, Name: one.Name},
	}
}

// read adds a stored history.
func (r *Record) read(id workload.ID, one checkpoint.Run) error {
	if one.Err != nil {
		return one.Err
	}
	switch id.Kind {
	case workload.Job:
		h := &jobs.History{}
		if err := errors.Join(json.Unmarshal(one.History, h), h.Valid()); err != nil {
			return err
		}
		r.jobs[id] = h
	case workload.CronJob:
		h := &cronjobs.History{}
		if err := errors.Join(json.Unmarshal(one.History, h), h.Valid()); err != nil {
			return err
		}
		r.crons[id] = h
	case workload.Pod, workload.DaemonSet, workload.Deployment, workload.ReplicaSet, workload.StatefulSet:
		h := &revisions.History{}
		if err := errors.Join(json.Unmarshal(one.History, h), h.Valid()); err != nil {
			return err
		}
		r.histories[id] = h
	default:
		return fmt.Errorf("unknown kind %q", id.Kind)
	}
	return nil
}

// rereads is after what time what could not be read is read again.
const rereads = 30 * time.Second

// notifyFrozen reports that what cannot be read is to be read again, by Recorded, as long as there is some.
func notifyFrozen(ctx context.Context, r *Record) {
	some := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.frozen) > 0
	}
	for some() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rereads):
			r.notify()
		}
	}
}

// thaw reads again what could not be read: its file may have been removed, or replaced. It is called before something
// is decided: what were read after that would be taken for decided against. The caller holds mu, which is free
// meanwhile.
func thaw(r *Record) {
	if r.store == nil || len(r.frozen) == 0 || time.Since(r.reread) < rereads/2 {
		return
	}
	r.reread = time.Now()
	r.mu.Unlock()
	stored, err := r.store.Runs()
	r.mu.Lock()
	if err != nil {
		return
	}
	now := map[workload.ID]checkpoint.Run{}
	for _, one := range stored {
		now[idOf(one)] = one
	}
	for id := range r.frozen {
		one, is := now[id]
		if is && r.read(id, one) != nil {
			continue
		}
		delete(r.frozen, id)
		r.log.Info("a record that could not be read is removed, or can be read now", "kind", id.Kind, "name", id.Key, "there", is)
	}
}
