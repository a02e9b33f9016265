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

// Waiting returns the pods that some process is to run, also those of which nothing is on disk yet, as while they wait
// for a device. A nil one knows of none.
type Waiting func() ([]*v1.Pod, error)

// users returns the names of the pods that exist or wait, by the claims that they have in their manifest. With an error
// there may be more.
func users(dirs layout.Dirs, waiting Waiting) (map[pod.Key][]string, error) {
	users, errs := existing(dirs)
	if waiting != nil {
		pods, err := waiting()
		errs = append(errs, err)
		for _, p := range pods {
			addUser(users, p)
		}
	}
	return users, errors.Join(errs...)
}

// addUser adds the claims that a pod has.
func addUser(users map[pod.Key][]string, p *v1.Pod) {
	for _, volume := range p.Spec.Volumes {
		if c := volume.PersistentVolumeClaim; c != nil {
			key := pod.Key{Namespace: p.Namespace, Name: c.ClaimName}
			if !slices.Contains(users[key], p.Name) {
				users[key] = append(users[key], p.Name)
			}
		}
	}
}

// existing returns the users that have something on disk.
func existing(dirs layout.Dirs) (users map[pod.Key][]string, errs []error) {
	users = map[pod.Key][]string{}
	entries, err := os.ReadDir(dirs.Pods())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return users, []error{fmt.Errorf("listing pods: %w", err)}
	}
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
		addUser(users, kept.Pod)
	}
	return users, errs
}

// readKept reads a file that podrun keeps of a pod. Containers cannot write to it, and it is far
// shorter than the limit here.
func readKept(path string) ([]byte, error) {
	return sys.ReadRegular(filepath.Dir(path), filepath.Base(path), sys.NoLinks, 64<<20)
}
