package cmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// betweenOwners is the time in which a running podrun acquires a pod that another process has
// released, or that it was started to run.
const betweenOwners = time.Second

// settledPods returns the pods as readPods does. If a pod has lost its owner a moment ago, or a
// serve has just started, it waits for betweenOwners and reads the pods again, provided that a
// podrun is running. So a pod that passes from one process to another is not shown as Unowned.
func settledPods(dirs layout.Dirs) ([]*v1.Pod, error) {
	pods, err := readPods(dirs)
	begun := agent.JustBegun(dirs, 3*betweenOwners)
	passing := func(p *v1.Pod) bool { return status.IsUnowned(p) && (begun || justLetGo(p)) }
	if err != nil || !slices.ContainsFunc(pods, passing) {
		return pods, err
	}
	if _, alive := agent.LastSeen(dirs); !alive {
		return pods, nil
	}
	time.Sleep(betweenOwners)
	return readPods(dirs)
}

// justLetGo reports whether the pod, which has no owner now, had one a moment ago.
func justLetGo(p *v1.Pod) bool {
	return time.Since(status.UnownedSince(p)) < 3*betweenOwners
}

// readPods returns the pods of all status files, sorted by namespace and name. It returns none if
// podrun never ran. Pods that no process owns get the reason Unowned.
func readPods(dirs layout.Dirs) ([]*v1.Pod, error) {
	entries, err := os.ReadDir(dirs.Statuses())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading status files: %w", err)
	}
	var pods []*v1.Pod
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		p, err := readPod(filepath.Join(dirs.Statuses(), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed in the meantime
		}
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	if pods, err = withOwners(dirs, pods); err != nil {
		return nil, err
	}
	if pods, err = withoutOwners(dirs, pods); err != nil {
		return nil, err
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return pods, nil
}

// withOwners merges the pods that serve wants to run but that another process owns. If such a pod
// has a status already, its reason and message are replaced by those of serve, which name the
// owner; otherwise the pod is added.
func withOwners(dirs layout.Dirs, pods []*v1.Pod) ([]*v1.Pod, error) {
	notes, err := filepath.Glob(filepath.Join(dirs.Statuses(), "*"+layout.SuffixNotOwned))
	if err != nil {
		return nil, err
	}
	for _, path := range notes {
		note, err := readPod(path)
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

// withoutOwners sets the reason Unowned for the pods that have not ended and that no process owns.
func withoutOwners(dirs layout.Dirs, pods []*v1.Pod) ([]*v1.Pod, error) {
	var all []*v1.Pod
	for _, p := range pods {
		key := pod.KeyOf(p)
		if kept, known := agent.Kept(dirs, key); !kept && known && !status.Ended(p) {
			var err error
			// The status is read again, because the owner may have written it after it was read and
			// before the process ended.
			last := agent.LastKept(dirs, key)
			if p, err = readUnowned(dirs.Status(key), last); errors.Is(err, fs.ErrNotExist) {
				p, err = readUnowned(dirs.NotOwned(key), last)
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
	p, err := readPod(path)
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

func readPod(path string) (*v1.Pod, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading status file: %w", err)
	}
	var p v1.Pod
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&p); err != nil {
		return nil, fmt.Errorf("status file %s: %w", path, err)
	}
	p.APIVersion, p.Kind = "v1", "Pod"
	return &p, nil
}

// within returns the pods of a namespace.
func within(pods []*v1.Pod, namespace string) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return p.Namespace != namespace })
}

// notFoundError is the error that a pod does not exist.
type notFoundError struct{ name string }

func (e *notFoundError) Error() string { return fmt.Sprintf("pods %q not found", e.name) }

// find returns the pod with the full name name, or else the pod with that name in its manifest. It
// fails if several pods have that name in their manifests.
func find(pods []*v1.Pod, name string) (*v1.Pod, error) {
	name = bareName(name)
	var short []*v1.Pod
	for _, p := range pods {
		if p.Name == name {
			return p, nil
		}
		if p.Spec.NodeName != "" && p.Name == name+"-"+strings.ToLower(p.Spec.NodeName) {
			short = append(short, p)
		}
	}
	switch len(short) {
	case 0:
		return nil, &cli.Error{Code: cli.ExitFailed, Err: &notFoundError{name}}
	case 1:
		return short[0], nil
	}
	var names []string
	for _, p := range short {
		names = append(names, p.Name)
	}
	return nil, &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("pods %q is ambiguous", name),
		Hint: "use a full name: " + strings.Join(names, ", ")}
}

// bareName returns the name of a pod without the prefix of a resource type.
func bareName(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "pods/"), "pod/"), "po/")
}

// podNamed returns a pod by its full name or its name in the manifest.
func (a *app) podNamed(namespace, name string) (*v1.Pod, error) {
	pods, err := readPods(a.dirs())
	if err != nil {
		return nil, err
	}
	return find(within(pods, namespace), name)
}

const defaultContainer = "kubectl.kubernetes.io/default-container"

// choose returns the container of p with the given name. If name is "", it returns the container
// that the default-container annotation names, or else the first one, and prints which one it chose
// if there are several.
func (a *app) choose(p *v1.Pod, name string) (summary.Role, error) {
	all := summary.Roles(p)
	if len(all) == 0 {
		return summary.Role{}, fmt.Errorf("pod %s has no containers", p.Name)
	}
	if name == "" {
		r := all[0]
		if i := slices.IndexFunc(all, func(r summary.Role) bool {
			return r.Container.Name == p.Annotations[defaultContainer]
		}); i >= 0 {
			r = all[i]
		} else if len(all) > 1 {
			fmt.Fprintf(a.ErrOut, "Defaulted container %q out of: %s\n", r.Container.Name, listed(all))
		}
		return r, nil
	}
	for _, r := range all {
		if r.Container.Name == name {
			return r, nil
		}
	}
	return summary.Role{}, &cli.Error{
		Code: cli.ExitFailed,
		Err:  fmt.Errorf("container %s is not valid for pod %s", name, p.Name),
		Hint: "it has: " + listed(all),
	}
}

func listed(all []summary.Role) string {
	var names []string
	for _, r := range all {
		name := r.Container.Name
		if r.Init {
			name += " (init)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// instance returns the instance of a container whose log is requested: the current or last one or,
// if previous is true, the one before.
func instance(p *v1.Pod, r summary.Role, previous bool) (pod.Instance, error) {
	name := r.Container.Name
	i := pod.Instance{Key: pod.KeyOf(p), UID: p.UID, Container: name}
	if r.Status == nil {
		return i, fmt.Errorf("container %q in pod %q is waiting to start", name, p.Name)
	}
	// While the container waits to be restarted, its newest instance is the one that terminated
	// last.
	i.ID, i.Attempt = r.InstanceID(), int(r.Status.RestartCount)
	waiting := r.Status.State.Running == nil && r.Status.State.Terminated == nil
	last := r.Status.LastTerminationState.Terminated
	switch {
	case previous && last == nil:
		return i, fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
	case previous && !waiting:
		i.ID, i.Attempt = pod.IDOf(last.ContainerID), i.Attempt-1
	case waiting && last == nil:
		why := ""
		if w := r.Status.State.Waiting; w != nil && w.Reason != "" {
			why = ": " + w.Reason
		}
		return i, fmt.Errorf("container %q in pod %q is waiting to start%s", name, p.Name, why)
	}
	return i, nil
}
