package report

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/directory"
)

// The limits of reports that containers have written.
const (
	maxReports    = 1000
	maxReport     = 8 << 20  // bytes of a file
	maxAllReports = 64 << 20 // bytes of a pod's files
	maxListed     = 100_000  // names in a directory
)

// allMerged returns the suites of the reports that the containers of all pods have left.
func (r Run) allMerged() (all []junitSuite) {
	for _, p := range r.Pods {
		all = append(all, r.merged(p)...)
	}
	return all
}

// merged returns the suites of the reports that the containers of a pod have left in the volumes that its
// annotation pod.AnnotationJUnit names.
func (r Run) merged(p *v1.Pod) []junitSuite {
	all := &suiteReader{run: r, pod: p}
	budget := maxAllReports
	for _, at := range pod.JUnitReports(p) {
		if late(r.until) {
			r.warn("pod %s: its reports %v; the others are left out", pod.KeyOf(p), errLate)
			break
		}
		dir, err := reportDir(r.Dirs, p, at.Volume)
		if err != nil {
			r.warn("pod %s: %s: %v", pod.KeyOf(p), pod.AnnotationJUnit, err)
			continue
		}
		defer dir.Close()
		names, err := matching(dir, at.Path)
		if err != nil || len(names) == 0 {
			r.warn("pod %s: no report matches %s:%s%s", pod.KeyOf(p), at.Volume, at.Path, because(err))
		}
		for _, name := range names {
			data, err := sys.ReadRegular(sys.FDPath(int(dir.Fd())), name, sys.NoLinks, min(maxReport, budget))
			if at, is := errors.AsType[*os.PathError](err); is { // its path is that of the descriptor
				err = at.Err
			}
			if err == nil {
				budget -= len(data)
				err = all.read(name, data)
			}
			if errors.Is(err, errEnough) {
				r.warn("pod %s: its reports %v; the others are left out", pod.KeyOf(p), err)
				return all.suites
			}
			if err != nil {
				r.warn("pod %s: the report %s in volume %s is not merged: %v", pod.KeyOf(p), name, at.Volume, err)
			}
		}
	}
	return all.suites
}
func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func (r Run) warn(format string, args ...any) {
	if r.Warn != nil {
		r.Warn(fmt.Sprintf(format, args...))
	}
}

// reportDir opens the directory of a volume of p.
func reportDir(dirs layout.Dirs, p *v1.Pod, name string) (*os.File, error) {
	open := func(path string) (*os.File, error) { return os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0) }
	for _, v := range p.Spec.Volumes {
		switch {
		case v.Name != name:
		case v.EmptyDir != nil:
			return open(dirs.Revision(p.UID).EmptyDir(name))
		case v.HostPath != nil:
			return open(v.HostPath.Path)
		case v.PersistentVolumeClaim != nil:
			claim := pod.Key{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
			return directory.OpenClaim(dirs, claim, unix.O_PATH)
		}
	}
	return nil, fmt.Errorf("there is no emptyDir, hostPath or persistentVolumeClaim with the name %q", name)
}

// matching returns the files in a volume that match a pattern, whose last element may have wildcards. No link
// is followed.
func matching(within *os.File, pattern string) ([]string, error) {
	dir, err := sys.OpenBeneath(within, filepath.Clean(path.Dir(pattern)), sys.NoLinks, os.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxListed)
	if err != nil {
		return nil, nil // it is empty
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		match, err := path.Match(path.Base(pattern), name)
		return err != nil || !match
	})
	slices.Sort(names)
	for i := range names {
		names[i] = path.Join(path.Dir(pattern), names[i])
	}
	return names[:min(len(names), maxReports)], nil
}
