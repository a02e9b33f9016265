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
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// betweenOwners is how long a running podrun may take to have a pod that another one has just let go, or that it was
// started to keep.
const betweenOwners = time.Second

// settledPods are the pods as readPods has them. Those that nobody keeps, and of which something was heard just now, are
// looked at twice while a podrun runs, so that one that goes from hand to hand is not shown as nobody's.
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

// justLetGo reports that a process kept the pod, which none keeps now, a moment ago.
func justLetGo(p *v1.Pod) bool {
	return time.Since(status.UnownedSince(p)) < 3*betweenOwners
}

// readPods returns the pods of all status files, by namespace and name. There are none where podrun
// never ran. Those that no process keeps are shown as such.
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
			continue // gone since
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

// withOwners says of the pods that serve wants and another process runs just that.
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

// withoutOwners says of the pods that have not ended and that no process keeps just that.
func withoutOwners(dirs layout.Dirs, pods []*v1.Pod) ([]*v1.Pod, error) {
	var all []*v1.Pod
	for _, p := range pods {
		key := pod.KeyOf(p)
		if kept, known := agent.Kept(dirs, key); !kept && known && !status.Ended(p) {
			var err error
			// Anew: what was read may be older than what its owner wrote last.
			last := agent.LastKept(dirs, key)
			if p, err = readUnowned(dirs.Status(key), last); errors.Is(err, fs.ErrNotExist) {
				p, err = readUnowned(dirs.NotOwned(key), last)
			}
			if errors.Is(err, fs.ErrNotExist) {
				continue // gone since
			}
			if err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// readUnowned reads the status of a pod that no process keeps. It was kept until last, if that is known; else until it
// was written.
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

// notFoundError says that there is no such pod.
type notFoundError struct{ name string }

func (e *notFoundError) Error() string { return fmt.Sprintf("pods %q not found", e.name) }

// find returns the pod of a full name, else the one whose manifest gives it that name.
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
		return nil, &failure{code: exitFailed, err: &notFoundError{name}}
	case 1:
		return short[0], nil
	}
	var names []string
	for _, p := range short {
		names = append(names, p.Name)
	}
	return nil, &failure{code: exitFailed, err: fmt.Errorf("pods %q is ambiguous", name),
		hint: "use a full name: " + strings.Join(names, ", ")}
}

// bareName is a pod's name without its kind.
func bareName(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "pods/"), "pod/"), "po/")
}

// podNamed finds a pod by its status file.
func (a *app) podNamed(namespace, name string) (*v1.Pod, error) {
	pods, err := readPods(a.dirs())
	if err != nil {
		return nil, err
	}
	return find(within(pods, namespace), name)
}

const defaultContainer = "kubectl.kubernetes.io/default-container"

// choose returns the named container of p; without a name the default one, and says so where there are
// several.
func (a *app) choose(p *v1.Pod, name string) (cli.Role, error) {
	all := cli.Roles(p)
	if len(all) == 0 {
		return cli.Role{}, fmt.Errorf("pod %s has no containers", p.Name)
	}
	if name == "" {
		r := all[0]
		if i := slices.IndexFunc(all, func(r cli.Role) bool { return r.Container.Name == p.Annotations[defaultContainer] }); i >= 0 {
			r = all[i]
		} else if len(all) > 1 {
			fmt.Fprintf(a.errOut, "Defaulted container %q out of: %s\n", r.Container.Name, listed(all))
		}
		return r, nil
	}
	for _, r := range all {
		if r.Container.Name == name {
			return r, nil
		}
	}
	return cli.Role{}, &failure{code: exitFailed, err: fmt.Errorf("container %s is not valid for pod %s", name, p.Name),
		hint: "it has: " + listed(all)}
}

func listed(all []cli.Role) string {
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

// instance names the run of a container whose log is wanted: the current or last one, or the one before.
func instance(p *v1.Pod, r cli.Role, previous bool) (pod.Instance, error) {
	name := r.Container.Name
	i := pod.Instance{Key: pod.KeyOf(p), UID: p.UID, Container: name}
	if r.Status == nil {
		return i, fmt.Errorf("container %q in pod %q is waiting to start", name, p.Name)
	}
	// While it waits to be started again, the newest run is the last one.
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
