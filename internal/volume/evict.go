package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/host"
)

// IsLimited reports that a pod has emptyDirs on disk that may not grow beyond a size.
func IsLimited(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if limited(&p.Spec.Volumes[i]) {
			return true
		}
	}
	return false
}

func limited(v *v1.Volume) bool {
	e := v.EmptyDir
	return e != nil && e.Medium == v1.StorageMediumDefault && e.SizeLimit != nil && e.SizeLimit.Sign() > 0
}

// Exceeded says, in the kubelet's words, which emptyDir of the pod has grown beyond its limit; "" if none
// has. Once it has been said it stays so. measure: it is looked at anew, which takes time.
func (v *Volumes) Exceeded(p *v1.Pod, measure bool) (string, error) {
	if !IsLimited(p) {
		return "", nil
	}
	path := v.dirs.Evicted(p.UID)
	said, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return string(said), err
	}
	if !measure {
		return "", nil
	}
	for i := range p.Spec.Volumes {
		volume := &p.Spec.Volumes[i]
		if !limited(volume) || !isComponent(volume.Name) {
			continue
		}
		used, err := usage(v.dirs.EmptyDir(p.UID, volume.Name))
		if err != nil {
			return "", fmt.Errorf("measuring volume %q: %w", volume.Name, err)
		}
		if limit := volume.EmptyDir.SizeLimit; used > limit.Value() {
			why := fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q.", volume.Name, limit.String())
			return why, host.WriteFile(path, []byte(why), 0o600)
		}
	}
	return "", nil
}

// usage is how much of the disk the files below dir take, each once however many names it has. Links are not
// followed, and what is mounted there is not counted.
func usage(dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	var total int64
	var dev uint64
	seen := map[uint64]bool{}
	err = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went away meanwhile
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if dev == 0 {
			dev = st.Dev
		}
		switch {
		case st.Dev != dev && d.IsDir():
			return fs.SkipDir
		case st.Dev != dev || st.Nlink > 1 && !d.IsDir() && seen[st.Ino]:
			return nil
		}
		seen[st.Ino] = st.Nlink > 1
		total += st.Blocks * 512
		return nil
	})
	return total, err
}
