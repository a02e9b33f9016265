package containerd

import (
	"context"
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

// savedPod is what List needs of a manifest, and what tells that the file is still the same.
type savedPod struct {
	key     pod.Key
	owner   string
	savedAt time.Time
	file    os.FileInfo
	// newest are the instances that were noted down, in the file noted; nil when there is none.
	newest []pod.Container
	noted  os.FileInfo
}

// SavePod implements runtime.Data.
func (r *Runtime) SavePod(p *v1.Pod, owner string) error {
	if err := layout.CheckUID(p.UID); err != nil {
		return err
	}
	data, err := json.Marshal(manifest{Owner: owner, Pod: p})
	if err != nil {
		return fmt.Errorf("encoding pod %s: %w", pod.KeyOf(p), err)
	}
	// Not synced to the disk: after a power cut nothing runs, and the manifests are read again.
	err = host.WriteFile(r.Dirs.Manifest(p.UID), data, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		err = r.makePodDir(p.UID, data)
	}
	if err != nil {
		return fmt.Errorf("keeping the manifest of %s: %w", pod.KeyOf(p), err)
	}
	// What is known need not be read again.
	if file, err := os.Lstat(r.Dirs.Manifest(p.UID)); err == nil {
		r.manifests.Put(p.UID, savedPod{key: pod.KeyOf(p), owner: owner, savedAt: file.ModTime(), file: file})
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
func (r *Runtime) makePodDir(uid pod.UID, manifest []byte) error {
	if err := os.MkdirAll(r.Dirs.Pods(), 0o711); err != nil {
		return err
	}
	fresh := r.besides(coming, uid)
	if err := os.Mkdir(fresh, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, filepath.Base(r.Dirs.Manifest(uid))), manifest, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, r.Dirs.Pod(uid))
}

func (r *Runtime) besides(kind string, uid pod.UID) string {
	return filepath.Join(r.Dirs.Pods(), kind+string(uid))
}

// sweepData removes the directories of revisions that were cut off while they came or went.
func (r *Runtime) sweepData() error {
	for _, kind := range []string{coming, going} {
		left, err := filepath.Glob(filepath.Join(r.Dirs.Pods(), kind+"*"))
		if err != nil {
			return err
		}
		for _, dir := range left {
			if err := host.NotMounted(dir); err != nil {
				return err
			}
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("removing what is left of a pod: %w", err)
			}
		}
	}
	return nil
}

// Remember implements runtime.Data. A revision that was removed meanwhile needs no notes.
func (r *Runtime) Remember(uid pod.UID, newest []pod.Container) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	data, err := json.Marshal(newest)
	if err != nil {
		return fmt.Errorf("encoding the instances of revision %s: %w", uid, err)
	}
	if err := host.WriteFile(r.Dirs.Instances(uid), data, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("noting down the instances of revision %s: %w", uid, err)
	}
	return nil
}

// LoadPod implements runtime.Data.
func (r *Runtime) LoadPod(uid pod.UID) (*v1.Pod, error) {
	if err := layout.CheckUID(uid); err != nil {
		return nil, err
	}
	m, err := readManifest(r.Dirs.Manifest(uid))
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

// saved returns the revisions that have a manifest. A directory without one is not podrun's to judge.
func (r *Runtime) saved(only *pod.Key) (map[pod.UID]savedPod, error) {
	entries, err := os.ReadDir(r.Dirs.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the pods' directories: %w", err)
	}
	out := map[pod.UID]savedPod{}
	for _, e := range entries {
		uid := pod.UID(e.Name())
		if !e.IsDir() || strings.HasPrefix(e.Name(), coming) || strings.HasPrefix(e.Name(), going) {
			continue
		}
		if known, ok := r.manifests.Get(uid); ok && only != nil && known.key != *only {
			continue
		}
		file, err := os.Lstat(r.Dirs.Manifest(uid))
		if errors.Is(err, fs.ErrNotExist) {
			r.manifests.Drop(uid)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking at the manifest of revision %s: %w", uid, err)
		}
		known, ok := r.manifests.Get(uid)
		was := known
		if !ok || !os.SameFile(known.file, file) || !known.file.ModTime().Equal(file.ModTime()) {
			m, err := readManifest(r.Dirs.Manifest(uid))
			if err != nil {
				r.Log.Warn("a kept manifest cannot be read", "uid", uid, "why", err)
				continue
			}
			known = savedPod{key: pod.KeyOf(m.Pod), owner: m.Owner, savedAt: file.ModTime(), file: file}
		}
		known.newest, known.noted = r.noted(uid, was)
		r.manifests.Put(uid, known)
		out[uid] = known
	}
	return out, nil
}

// noted reads the instances that were noted down for the revision, unless they are what was read before.
func (r *Runtime) noted(uid pod.UID, was savedPod) ([]pod.Container, os.FileInfo) {
	path := r.Dirs.Instances(uid)
	file, err := os.Lstat(path)
	if err != nil {
		return nil, nil
	}
	if was.noted != nil && os.SameFile(was.noted, file) && was.noted.ModTime().Equal(file.ModTime()) {
		return was.newest, file
	}
	var newest []pod.Container
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &newest)
	}
	if err != nil {
		r.Log.Warn("the notes of instances cannot be read; restart counts may begin anew", "uid", uid, "why", err)
		return nil, file
	}
	for i := range newest {
		newest[i].UID = uid
	}
	return newest, file
}

// RemoveData implements runtime.Data. The manifest goes last, so that what is cut off is found again.
// With something still mounted inside, nothing is removed: it might be a user's.
func (r *Runtime) RemoveData(ctx context.Context, key pod.Key, uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	ctx = r.client.Context(ctx)
	if err := r.Hide(ctx, uid); err != nil {
		return err
	}
	dirs := []string{r.Dirs.PodLogs(key, uid), r.Dirs.Pod(uid)}
	for _, dir := range dirs {
		if err := host.NotMounted(dir); err != nil {
			return err
		}
	}
	if err := r.removeCgroups(ctx, uid); err != nil {
		return err
	}
	if err := r.dropRecords(ctx, uid); err != nil {
		return err
	}
	if err := r.Sandboxes.Sweep(ctx); err != nil {
		return err
	}
	if err := r.retireLogs(dirs[0]); err != nil {
		return err
	}
	if err := os.RemoveAll(r.Dirs.Etc(uid)); err != nil {
		return fmt.Errorf("removing what a pod has in the run directory: %w", err)
	}
	if err := r.removeAllButManifest(ctx, uid); err != nil {
		return fmt.Errorf("removing a pod's data: %w", err)
	}
	r.manifests.Drop(uid)
	r.sizes.Drop(uid)
	if err := os.Rename(r.Dirs.Pod(uid), r.besides(going, uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a pod's directory: %w", err)
	}
	if err := os.RemoveAll(r.besides(going, uid)); err != nil {
		return fmt.Errorf("removing a pod's directory: %w", err)
	}
	return nil
}

// retireLogs removes a revision's logs or, where they are to stay for a time, has that time begin.
func (r *Runtime) retireLogs(dir string) error {
	var err error
	if r.KeepLogs {
		now := time.Now()
		if err = os.Chtimes(dir, now, now); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("removing a pod's logs: %w", err)
	}
	return nil
}

func (r *Runtime) removeAllButManifest(ctx context.Context, uid pod.UID) error {
	dir := r.Dirs.Pod(uid)
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() { // a link is not followed
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(r.Dirs.Manifest(uid)) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
