package revision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// manifest is the content of a revision's pod.json.
type manifest struct {
	Owner string  `json:"owner"`
	Pod   *v1.Pod `json:"pod"`
}

// Saved is what is on disk of a revision, but for the pod itself.
type Saved struct {
	Key     pod.Key
	Owner   string
	SavedAt time.Time
	// Newest are the instances that were noted down; see Remember.
	Newest []pod.Container
	// file and noted tell that the files with the manifest and the instances are still the same; noted is nil when
	// there is none.
	file, noted os.FileInfo
}

// SavePod implements runtime.Data.
func (f *Files) SavePod(p *v1.Pod, owner string) error {
	if err := layout.CheckUID(p.UID); err != nil {
		return err
	}
	data, err := json.Marshal(manifest{Owner: owner, Pod: p})
	if err != nil {
		return fmt.Errorf("encoding pod %s: %w", pod.KeyOf(p), err)
	}
	// Not synced to the disk: after a power cut nothing runs, and the manifests are read again.
	err = host.WriteFile(f.o.Dirs.Manifest(p.UID), data, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		err = f.makePodDir(p.UID, data)
	}
	if err != nil {
		return fmt.Errorf("keeping the manifest of %s: %w", pod.KeyOf(p), err)
	}
	// What is known need not be read again.
	if file, err := os.Lstat(f.o.Dirs.Manifest(p.UID)); err == nil {
		f.manifests.Put(p.UID, Saved{Key: pod.KeyOf(p), Owner: owner, SavedAt: file.ModTime(), file: file})
	}
	return nil
}

// The directories in which a revision's comes and goes. A revision's own directory always has a manifest,
// so that whatever is left of it can be told whose it is; what has another name is nobody's.
const (
	coming = ".coming-"
	going  = ".going-"
)

// makePodDir makes a revision's directory, with its manifest in it from the first.
func (f *Files) makePodDir(uid pod.UID, manifest []byte) error {
	if err := os.MkdirAll(f.o.Dirs.Pods(), 0o711); err != nil {
		return err
	}
	fresh := f.besides(coming, uid)
	if err := os.Mkdir(fresh, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, filepath.Base(f.o.Dirs.Manifest(uid))), manifest, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, f.o.Dirs.Pod(uid))
}

// besides is where a revision's directory is while it comes or goes.
func (f *Files) besides(kind string, uid pod.UID) string {
	return filepath.Join(f.o.Dirs.Pods(), kind+string(uid))
}

// LoadPod implements runtime.Data.
func (f *Files) LoadPod(uid pod.UID) (*v1.Pod, error) {
	if err := layout.CheckUID(uid); err != nil {
		return nil, err
	}
	m, err := readManifest(f.o.Dirs.Manifest(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("manifest of revision %s: %w", uid, runtime.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of revision %s: %w", uid, err)
	}
	return m.Pod, nil
}

func readManifest(path string) (manifest, error) {
	var m manifest
	data, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, err
	}
	if m.Pod == nil {
		return m, errors.New("there is no pod in it")
	}
	return m, nil
}

// Saved returns the revisions that have a manifest; with only, those of that pod at least. A directory without one is
// not podrun's to judge, and a manifest that cannot be read is told of and left out.
func (f *Files) Saved(only *pod.Key) (map[pod.UID]Saved, error) {
	entries, err := os.ReadDir(f.o.Dirs.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the pods' directories: %w", err)
	}
	out := map[pod.UID]Saved{}
	for _, e := range entries {
		uid := pod.UID(e.Name())
		if !e.IsDir() || strings.HasPrefix(e.Name(), coming) || strings.HasPrefix(e.Name(), going) {
			continue
		}
		if known, ok := f.manifests.Get(uid); ok && only != nil && known.Key != *only {
			continue
		}
		file, err := os.Lstat(f.o.Dirs.Manifest(uid))
		if errors.Is(err, fs.ErrNotExist) {
			f.manifests.Drop(uid)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking at the manifest of revision %s: %w", uid, err)
		}
		known, ok := f.manifests.Get(uid)
		was := known
		if !ok || !os.SameFile(known.file, file) || !known.file.ModTime().Equal(file.ModTime()) {
			m, err := readManifest(f.o.Dirs.Manifest(uid))
			if err != nil {
				f.o.Log.Warn("a kept manifest cannot be read", "uid", uid, "why", err)
				continue
			}
			known = Saved{Key: pod.KeyOf(m.Pod), Owner: m.Owner, SavedAt: file.ModTime(), file: file}
		}
		known.Newest, known.noted = f.noted(uid, was)
		f.manifests.Put(uid, known)
		out[uid] = known
	}
	return out, nil
}
