package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// Sweep removes the files of pods that are not there. Whoever removed the last of such a pod was killed
// before it could say so.
func (f *Files) Sweep(there func(pod.Key) bool) error {
	entries, err := os.ReadDir(f.dirs.Statuses())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for old status files: %w", err)
	}
	for _, e := range entries {
		base, isStatus := strings.CutSuffix(e.Name(), ".json")
		namespace, name, ok := strings.Cut(base, "_")
		if key := (pod.Key{Namespace: namespace, Name: name}); isStatus && ok && !there(key) {
			if err := f.Gone(key); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read returns the pods of all status files, in order of namespace and name. Files that vanish
// meanwhile are left out.
func Read(dirs layout.Dirs) ([]v1.Pod, error) {
	entries, err := os.ReadDir(dirs.Statuses())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading status files: %w", err)
	}
	var pods []v1.Pod
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		path := filepath.Join(dirs.Statuses(), e.Name())
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading status files: %w", err)
		}
		var p v1.Pod
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		pods = append(pods, p)
	}
	return pods, nil
}
