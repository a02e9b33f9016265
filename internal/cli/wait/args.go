package wait

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// Parse reads the arguments of the command, `NAME...`, `TYPE/NAME...` or `TYPE NAME...`, and returns them without a
// type of its own. selected reports that flags select the objects. A pod may have the name of a type: if there is one,
// it is meant.
func (w *Wait) Parse(namespace string, args []string, selected bool) (names []string, err error) {
	if len(args) > 0 && (selected || w.All || len(args) > 1) {
		kind := query.WorkloadKind(args[0])
		if kind != "" {
			if _, err := w.Reader.Named(namespace, args[0]); err == nil {
				kind = ""
			}
		}
		if w.kind = kind; query.IsPods(args[0]) || kind != "" {
			args = args[1:]
		}
	}
	if len(args) == 0 && !w.All && !selected {
		return nil, errors.New("an argument is missing: name the pods, or give --all")
	}
	if w.meet, err = parseCondition(w.For); err != nil {
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
		if id, is := query.WorkloadName(namespace, name); is {
			err = errors.Join(err, w.refuse(id.Kind))
		}
		names = append(names, name)
	}
	if w.kind != "" {
		err = errors.Join(err, w.refuse(w.kind))
	}
	return names, err
}

// targets returns the workloads and the pods to wait for.
func (w *Wait) targets(s query.Selection, names []string) (objects []workload.ID, pods []pod.Key, err error) {
	for _, key := range s.Jobs {
		objects = append(objects, workload.ID{Kind: workload.Job, Key: key})
	}
	manifests := slices.Clone(s.Manifests)
	for _, made := range s.Workloads {
		if w.itself(made.Kind) {
			objects = append(objects, made.ID)
			manifests = slices.DeleteFunc(manifests, func(key pod.Key) bool { return slices.Contains(made.Pods, key) })
		}
	}
	var others []pod.Key
	for _, name := range names {
		if id, is := query.WorkloadName(s.Namespace, name); is && w.itself(id.Kind) {
			objects = append(objects, id)
		} else {
			others = append(others, pod.Key{Namespace: s.Namespace, Name: name})
		}
	}
	if w.kind != "" && len(names) == 0 {
		all, theirPods, err := w.ofKind(s)
		if err != nil {
			return nil, nil, err
		}
		objects, others = append(objects, all...), append(others, theirPods...)
	}
	if s.Manifests, s.Jobs = manifests, nil; len(objects) > 0 && len(others)+len(manifests) == 0 {
		return objects, nil, nil
	}
	pods, err = w.podKeys(s, others)
	return objects, pods, err
}

// justBegun is how long a serve may take to read its manifests.
const justBegun = 5 * time.Second

// podKeys returns the pods that are named, whether or not they exist, or else those that the selection finds now. It
// fails if it finds none, unless wait waits until they do not exist.
func (w *Wait) podKeys(s query.Selection, named []pod.Key) (keys []pod.Key, err error) {
	keys, err = w.expand(named)
	for err != nil && w.Reader.Owners.JustBegun(justBegun) { // it has not read its manifests yet
		time.Sleep(100 * time.Millisecond)
		keys, err = w.expand(named)
	}
	if err != nil {
		return nil, err
	}
	if keys = append(keys, s.Manifests...); len(keys) > 0 {
		return keys, nil
	}
	pods, err := w.Reader.Select(s, nil)
	if err == nil && len(pods) == 0 && !w.gone() {
		err = errors.New("no pods match: there is nothing to wait for")
	}
	for _, p := range pods {
		keys = append(keys, pod.KeyOf(p))
	}
	return keys, err
}

// expand returns the pods that are named, with those of a workload in place of its TYPE/NAME.
func (w *Wait) expand(named []pod.Key) (keys []pod.Key, err error) {
	for _, key := range named {
		names, err := w.Reader.Expand(key.Namespace, []string{key.Name})
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			keys = append(keys, pod.Key{Namespace: key.Namespace, Name: name})
		}
	}
	return keys, nil
}

// ofKind returns the workloads of the kind that s selects, or their namespaces and TYPE/NAMEs if their pods are meant.
func (w *Wait) ofKind(s query.Selection) (all []workload.ID, named []pod.Key, err error) {
	selects, err := labels.Parse(s.Labels)
	if err != nil {
		return nil, nil, fmt.Errorf("--selector %q: %w", s.Labels, err)
	}
	saved, err := status.Workloads(w.Reader.Dirs)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range saved {
		if one.Kind != w.kind || !s.AllNamespaces && one.Namespace != s.Namespace || !selects.Matches(one.Labels()) {
			continue
		}
		if w.itself(w.kind) {
			all = append(all, workload.ID{Kind: w.kind, Key: pod.Key{Namespace: one.Namespace, Name: one.Name}})
		} else {
			name := strings.ToLower(string(w.kind)) + "/" + one.Name
			named = append(named, pod.Key{Namespace: one.Namespace, Name: name})
		}
	}
	if len(all)+len(named) == 0 {
		err = fmt.Errorf("no %ss match: there is nothing to wait for", strings.ToLower(string(w.kind)))
	}
	return all, named, err
}
