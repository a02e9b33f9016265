package status

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// Files keeps one file per pod with the v1.Pod that `get` prints, replaced atomically.
type Files struct {
	dirs layout.Dirs
	mu   sync.Mutex
	last map[pod.Key][]byte
}

// NewFiles keeps the status files of dirs.
func NewFiles(dirs layout.Dirs) *Files {
	return &Files{dirs: dirs, last: map[pod.Key][]byte{}}
}

// Publish replaces p's file if it would change.
func (f *Files) Publish(p *v1.Pod, _ bool) error {
	key := pod.KeyOf(p)
	out := p.DeepCopy()
	out.APIVersion, out.Kind = "v1", "Pod"
	data, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encoding status of %s: %w", key, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.Equal(f.last[key], data) {
		return nil
	}
	if err := os.MkdirAll(f.dirs.Statuses(), 0o755); err != nil {
		return fmt.Errorf("writing status of %s: %w", key, err)
	}
	if err := host.WriteFile(f.dirs.Status(key), data, 0o600); err != nil {
		return fmt.Errorf("writing status of %s: %w", key, err)
	}
	f.last[key] = data
	return nil
}

// Gone removes the file of a pod of which nothing is left.
func (f *Files) Gone(key pod.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, key)
	if err := os.Remove(f.dirs.Status(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing status of %s: %w", key, err)
	}
	return nil
}

// Pods returns what has been published of the pods that are not gone, in order of namespace and name.
func (f *Files) Pods() ([]v1.Pod, error) {
	f.mu.Lock()
	last := maps.Clone(f.last) // the contents are never changed
	f.mu.Unlock()
	pods := make([]v1.Pod, 0, len(last))
	for key, data := range last {
		var p v1.Pod
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("decoding status of %s: %w", key, err)
		}
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// Keys returns the pods that have a status file.
func Keys(dirs layout.Dirs) ([]pod.Key, error) {
	entries, err := os.ReadDir(dirs.Statuses())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading status files: %w", err)
	}
	var keys []pod.Key
	for _, e := range entries {
		// Neither a namespace nor a pod's name has an underscore.
		namespace, name, ok := strings.Cut(strings.TrimSuffix(e.Name(), ".json"), "_")
		if ok && filepath.Ext(e.Name()) == ".json" {
			keys = append(keys, pod.Key{Namespace: namespace, Name: name})
		}
	}
	return keys, nil
}

// Sweep removes what writers that were killed have left half written.
func Sweep(dirs layout.Dirs) error {
	left, err := filepath.Glob(filepath.Join(dirs.Statuses(), "*.tmp"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing half a status: %w", err)
		}
	}
	return nil
}
