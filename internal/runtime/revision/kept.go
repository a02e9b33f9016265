package revision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// Kept is a revision of a pod whose manifest is kept on disk.
type Kept struct {
	// Owner is the kind of run that the revision belongs to: "serve" or "once".
	Owner   string
	Pod     *v1.Pod
	SavedAt time.Time
}

// ReadKept returns the kept manifest of every pod, of its newest revision. It needs no runtime, and
// says nothing of whether anything runs.
func ReadKept(dirs layout.Dirs) (map[pod.Key]Kept, error) {
	entries, err := os.ReadDir(dirs.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the pods' directories: %w", err)
	}
	newest := map[pod.Key]Kept{}
	for _, e := range entries {
		path := dirs.Manifest(pod.UID(e.Name()))
		file, err := os.Lstat(path)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // not podrun's, or on its way out
			}
			return nil, fmt.Errorf("looking at a kept manifest: %w", err)
		}
		m, err := readManifest(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		key := pod.KeyOf(m.Pod)
		if before, ok := newest[key]; !ok || before.SavedAt.Before(file.ModTime()) {
			newest[key] = Kept{Owner: m.Owner, Pod: m.Pod, SavedAt: file.ModTime()}
		}
	}
	return newest, nil
}
