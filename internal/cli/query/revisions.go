package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest/rollback"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// Revisions returns the recorded revisions of the pod or workload that args name: POD, TYPE/NAME or TYPE NAME.
func (r *Reader) Revisions(namespace string, args []string) (workload.ID, *revisions.History, error) {
	id, err := r.revised(namespace, args)
	if err != nil {
		return id, nil, err
	}
	store := checkpoint.NewStore(r.Dirs, slog.New(slog.DiscardHandler))
	runs, err := store.Runs()
	if err != nil {
		return id, nil, err
	}
	for _, one := range runs {
		if one.Kind != string(id.Kind) || one.Namespace != id.Key.Namespace || one.Name != id.Key.Name {
			continue
		}
		h, err := history(store, one)
		return id, h, err
	}
	return id, nil, &cli.Error{
		Code: cli.ExitFailed, Err: fmt.Errorf("no revisions of %s are recorded", id),
		Hint: "serve records those of pods with the annotation podrun.io/rollback: \"true\", and with --rollback " +
			"those of all pods",
	}
}

// HeldImages returns the images, by digest, that a rollback of a pod or workload would run.
func HeldImages(dirs layout.Dirs) ([]string, error) {
	store := checkpoint.NewStore(dirs, slog.New(slog.DiscardHandler))
	runs, err := store.Runs()
	var refs []string
	for _, one := range runs {
		if workload.Kind(one.Kind) == workload.Job || workload.Kind(one.Kind) == workload.CronJob || one.Kind == "" {
			continue
		}
		h, failed := history(store, one)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		refs = append(refs, h.Held()...)
	}
	return refs, err
}

// history returns the recorded revisions of a pod or workload.
func history(store *checkpoint.Store, r checkpoint.Run) (*revisions.History, error) {
	h, err := &revisions.History{}, r.Err
	if err == nil {
		err = json.Unmarshal(r.History, h)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", store.RunPath(r), err)
	}
	return h, nil
}

// revised returns the pod or workload that args name; for a pod of a workload, that.
func (r *Reader) revised(namespace string, args []string) (workload.ID, error) {
	kind, names, is := WorkloadArgs(args)
	if is && kind != workload.Job && kind != workload.CronJob && len(names) == 1 {
		return workload.ID{Kind: kind, Key: pod.Key{Namespace: namespace, Name: names[0]}}, nil
	}
	if len(args) == 2 && IsPods(args[0]) {
		args = args[1:]
	}
	if len(args) != 1 {
		return workload.ID{}, &cli.Error{Code: cli.ExitUsage, Err: errors.New("name one pod or workload")}
	}
	p, err := r.Named(namespace, args[0])
	if err != nil {
		return workload.ID{}, err
	}
	return rollback.Of(p), nil
}
