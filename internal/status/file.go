package status

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Files maintains one file per pod with the v1.Pod that `get` prints. Files are replaced
// atomically. Its methods may be called concurrently.
type Files struct {
	dirs layout.Dirs
	mu   sync.Mutex
	// last holds the pods as they are in the files. They are never modified, and share what is in them
	// with the pods that were published.
	last map[pod.Key]*v1.Pod
	// others holds the pods that another process owns; their status files are written by that
	// process.
	others map[pod.Key]*v1.Pod
}

// NewFiles returns Files for the status files in dirs.
func NewFiles(dirs layout.Dirs) *Files {
	return &Files{dirs: dirs, last: map[pod.Key]*v1.Pod{}, others: map[pod.Key]*v1.Pod{}}
}

// Publish replaces p's file if its content changes. What p points to must not be modified afterwards.
func (f *Files) Publish(p *v1.Pod, _ time.Time, _ bool) error {
	out := *p
	out.APIVersion, out.Kind = "v1", "Pod"
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(&out)
}

// write replaces a file if its content changes.
func (f *Files) write(p *v1.Pod) error {
	key := pod.KeyOf(p)
	if reflect.DeepEqual(f.last[key], p) { // most are, and that is found sooner than two encodings are made
		return nil
	}
	if err := f.put(f.dirs.StatusFiles().Pod(key), p); err != nil {
		return err
	}
	f.last[key] = p
	return nil
}

// put replaces the file at path.
func (f *Files) put(path string, p *v1.Pod) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding status of %s: %w", pod.KeyOf(p), err)
	}
	err = os.MkdirAll(f.dirs.StatusFiles().Dir(), layout.ModePrivate)
	if err == nil {
		err = sys.ReplaceFile(path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing status of %s: %w", pod.KeyOf(p), err)
	}
	return nil
}

// NotOwned records why this process does not own the pod with manifest p, for example because
// another process does; a nil why removes the record. The pod's status file is then written by the
// other process. What p points to must not be modified afterwards.
func (f *Files) NotOwned(key pod.Key, p *v1.Pod, why *plan.Waiting) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why == nil {
		delete(f.others, key)
		if err := os.Remove(f.dirs.StatusFiles().NotOwned(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the record that another process owns %s: %w", key, err)
		}
		return nil
	}
	out := *p
	out.APIVersion, out.Kind = "v1", "Pod"
	out.Status = v1.PodStatus{Phase: v1.PodPending, Reason: why.Reason, Message: why.Message}
	if reflect.DeepEqual(f.others[key], &out) {
		return nil
	}
	if err := f.put(f.dirs.StatusFiles().NotOwned(key), &out); err != nil {
		return err
	}
	delete(f.last, key) // the other process writes it now
	f.others[key] = &out
	return nil
}

// Gone removes the status file of a pod of which nothing is left.
func (f *Files) Gone(key pod.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, key)
	if err := os.Remove(f.dirs.StatusFiles().Pod(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing status of %s: %w", key, err)
	}
	return nil
}

// Touch sets the modification times of the status files to now, which says that their content is
// still current.
func (f *Files) Touch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for key := range f.last {
		if f.others[key] == nil {
			_ = os.Chtimes(f.dirs.StatusFiles().Pod(key), now, now) // without it the status only looks older
		}
	}
}

// Pods returns the published pods that are not gone, ordered by namespace and name.
func (f *Files) Pods() ([]v1.Pod, error) {
	f.mu.Lock()
	last := maps.Clone(f.others)
	maps.Copy(last, f.last)
	f.mu.Unlock()
	pods := make([]v1.Pod, 0, len(last))
	for _, p := range last {
		pods = append(pods, *p.DeepCopy())
	}
	slices.SortFunc(pods, func(a, b v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// Keys returns the pods that have a status file.
func Keys(dirs layout.Dirs) ([]pod.Key, error) {
	entries, err := os.ReadDir(dirs.StatusFiles().Dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading status files: %w", err)
	}
	var keys []pod.Key
	for _, e := range entries {
		// Neither a namespace nor a pod name contains an underscore.
		namespace, name, ok := strings.Cut(strings.TrimSuffix(e.Name(), ".json"), "_")
		if ok && filepath.Ext(e.Name()) == ".json" {
			keys = append(keys, pod.Key{Namespace: namespace, Name: name})
		}
	}
	return keys, nil
}

// Sweep removes incomplete files of writers that were killed, and the NotOwned files of an earlier
// serve.
func Sweep(dirs layout.Dirs) error {
	left, err := filepath.Glob(filepath.Join(dirs.StatusFiles().Dir(), "*.tmp"))
	if err != nil {
		return err
	}
	notes, err := filepath.Glob(filepath.Join(dirs.StatusFiles().Dir(), "*"+layout.SuffixNotOwned))
	if err != nil {
		return err
	}
	left = append(left, notes...)
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an incomplete status file: %w", err)
		}
	}
	return nil
}
