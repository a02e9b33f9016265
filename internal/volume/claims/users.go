package claims

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// users returns the names of the pods that exist, by the claims that they have in their manifest. With an error there
// may be more.
func users(dirs layout.Dirs) (map[pod.Key][]string, error) {
	entries, err := os.ReadDir(dirs.Pods())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	users := map[pod.Key][]string{}
	var errs []error
	for _, e := range entries {
		data, err := readKept(dirs.Revision(pod.UID(e.Name())).Checkpoint())
		if errors.Is(err, fs.ErrNotExist) { // of the former version, not adopted yet
			data, err = readKept(dirs.Legacy().Manifest(pod.UID(e.Name())))
		}
		if errors.Is(err, fs.ErrNotExist) || !e.IsDir() {
			continue
		}
		var kept struct {
			Pod *v1.Pod `json:"pod"`
		}
		if err == nil {
			err = json.Unmarshal(data, &kept)
		}
		if err != nil || kept.Pod == nil {
			errs = append(errs, fmt.Errorf("reading the checkpoint of revision %s: %w",
				e.Name(), cmp.Or(err, errors.New("it contains no pod"))))
			continue
		}
		for _, volume := range kept.Pod.Spec.Volumes {
			if c := volume.PersistentVolumeClaim; c != nil {
				key := pod.Key{Namespace: kept.Pod.Namespace, Name: c.ClaimName}
				if !slices.Contains(users[key], kept.Pod.Name) {
					users[key] = append(users[key], kept.Pod.Name)
				}
			}
		}
	}
	return users, errors.Join(errs...)
}

// readKept reads a file that podrun keeps of a pod. Containers cannot write to it, and it is far
// shorter than the limit here.
func readKept(path string) ([]byte, error) {
	return sys.ReadRegular(filepath.Dir(path), filepath.Base(path), sys.NoLinks, 64<<20)
}
