package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// Wait is what podrun wait waits for.
type Wait struct {
	// For is the value of --for.
	For string
	// All selects all objects of the namespace.
	All     bool
	Timeout time.Duration // 0: check once
	// Check returns an error if one of the pods can never be. It may wait for a serve that starts, at most so long.
	Check func(context.Context, []pod.Key, time.Duration) error
	// kind is that of the objects that are named or selected; "": pods.
	kind      workload.Kind
	condition Condition
}

// Parse reads the arguments of the command, `NAME...`, `TYPE/NAME...` or `TYPE NAME...`, and returns them without a
// type of its own. selected reports that flags select the objects. A pod may have the name of a type: if there is one,
// it is meant.
func (w *Wait) Parse(r *Reader, namespace string, args []string, selected bool) (names []string, err error) {
	if len(args) > 0 && (selected || w.All || len(args) > 1) {
		kind := WorkloadKind(args[0])
		if kind != "" {
			if _, err := r.Named(namespace, args[0]); err == nil {
				kind = ""
			}
		}
		if w.kind = kind; IsPods(args[0]) || kind != "" {
			args = args[1:]
		}
	}
	if len(args) == 0 && !w.All && !selected {
		return nil, errors.New("an argument is missing: name the pods, or give --all")
	}
	if w.condition, err = ParseCondition(w.For); err != nil {
		return nil, err
	}
	switch {
	case w.Timeout < 0:
		return nil, fmt.Errorf("--timeout %s: must not be negative", w.Timeout)
	case w.All && len(args) > 0:
		return nil, errors.New("name the pods, or give --all")
	}
	for _, name := range args {
		if w.kind != "" {
			name = strings.ToLower(string(w.kind)) + "/" + name
		}
		names = append(names, name)
	}
	return names, nil
}

// Run waits for the objects, and then for the pods, that names and s select. names are those that Parse has returned.
func (w *Wait) Run(ctx context.Context, r *Reader, out io.Writer, s Selection, names []string) error {
	began := time.Now()
	objects, names, err := w.objects(r, s, names)
	if err != nil {
		return err
	}
	s.Manifests = slices.DeleteFunc(slices.Clone(s.Manifests), func(key pod.Key) bool {
		return slices.ContainsFunc(s.Workloads, func(made Made) bool {
			return w.itself(made.Kind) && slices.Contains(made.Pods, key)
		})
	})
	if len(objects) > 0 {
		o := ObjectWait{Objects: objects, For: w.For, Timeout: w.Timeout}
		if err := r.WaitObjects(ctx, out, o); err != nil || len(names)+len(s.Manifests) == 0 {
			return err
		}
	}
	gone := w.condition(nil)
	s.Jobs = nil
	pods, err := r.WaitFor(s, names, gone)
	if err == nil && !gone && w.For != "create" {
		err = w.Check(ctx, pods, w.Timeout)
	}
	if err != nil {
		return err
	}
	left := max(0, w.Timeout-time.Since(began))
	return r.Wait(ctx, out, WaitOptions{Pods: pods, Condition: w.condition, Timeout: left, Gone: gone})
}

// isCondition reports that a value of --for is the condition name, whatever its status should be.
func isCondition(value, name string) bool {
	return strings.HasPrefix(strings.ToLower(value)+"=", "condition="+strings.ToLower(name)+"=")
}

// itself reports that an object of a kind has the condition itself; else its pods have it.
func (w *Wait) itself(kind workload.Kind) bool {
	return kind == workload.Job || kind == workload.CronJob || kind == workload.Deployment &&
		(isCondition(w.For, "Available") || isCondition(w.For, "Progressing") || isCondition(w.For, conditionComplete))
}

// objects returns the objects to wait for, and the names of pods and of workloads that stand for their pods.
func (w *Wait) objects(r *Reader, s Selection, names []string) (all []workload.ID, others []string, err error) {
	for _, key := range s.Jobs {
		all = append(all, workload.ID{Kind: workload.Job, Key: key})
	}
	for _, made := range s.Workloads {
		if w.itself(made.Kind) {
			all = append(all, made.ID)
		}
	}
	for _, name := range names {
		if id, is := WorkloadName(s.Namespace, name); is && w.itself(id.Kind) {
			all = append(all, id)
		} else {
			others = append(others, name)
		}
	}
	if w.kind == "" || len(names) > 0 {
		return all, others, nil
	}
	selects, err := labels.Parse(s.Labels)
	if err != nil {
		return nil, nil, fmt.Errorf("--selector %q: %w", s.Labels, err)
	}
	saved, err := status.Workloads(r.Dirs)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range saved {
		if one.Kind != w.kind || !s.AllNamespaces && one.Namespace != s.Namespace || !selects.Matches(one.Labels()) {
			continue
		}
		if w.itself(w.kind) {
			all = append(all, workload.ID{Kind: w.kind, Key: pod.Key{Namespace: one.Namespace, Name: one.Name}})
		} else if one.Namespace == s.Namespace {
			others = append(others, strings.ToLower(string(w.kind))+"/"+one.Name)
		}
	}
	if len(all)+len(others) == 0 {
		err = fmt.Errorf("no %ss match: there is nothing to wait for", strings.ToLower(string(w.kind)))
	}
	return all, others, err
}
