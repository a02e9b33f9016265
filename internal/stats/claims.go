package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
)

// walk is the measurement of a claim, which may be on a file system that does not answer: what waits for that cannot be
// interrupted. Nobody waits for it longer than one request, and there is one at a time for a claim.
type walk struct {
	dir  string
	late bool // a request has waited for it
	done chan struct{}
	of   wholeVolume // valid when done is closed, as is err
	err  error
}

func (w *walk) hasEnded() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// walk begins to measure the claims of a pod that are not measured already, and returns these measurements by volume.
// They end with ctx, if their file system answers.
func (s *storage) walk(ctx context.Context, p *v1.Pod) map[string]*walk {
	all := map[string]*walk{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil {
			continue
		}
		dir := s.Dir(p, v)
		w := s.walks[dir]
		if w == nil {
			w = &walk{dir: dir, done: make(chan struct{})}
			s.walks[dir] = w
			go func() {
				defer close(w.done)
				if w.of.fs, w.err = s.FS(dir); w.err == nil {
					w.of.used, w.err = s.Size(ctx, dir)
				}
				w.of.at = time.Now()
			}()
		}
		all[v.Name] = w
	}
	return all
}

// ended waits for measurements until ctx ends, and returns their results, by volume. A claim that takes long has the
// former result, once. What has no directory, or does not answer, is left out; for the latter there is an error.
func ended(ctx context.Context, walks map[string]*walk, former map[string]wholeVolume) (map[string]wholeVolume, error) {
	all := map[string]wholeVolume{}
	var failed []error
	for name, w := range walks {
		before, measured := former[name]
		measured = measured && !w.late
		if !w.late {
			select {
			case <-w.done:
			case <-ctx.Done():
				w.late = true
			}
		}
		switch ended := w.hasEnded(); {
		case measured && (!ended || w.err != nil && ctx.Err() != nil):
			all[name] = before
		case !ended:
			failed = append(failed, fmt.Errorf("measuring %s has not ended yet: it is large, or does not answer", w.dir))
		case w.err == nil:
			all[name] = w.of
		case !errors.Is(w.err, fs.ErrNotExist):
			failed = append(failed, w.err)
		}
	}
	return all, errors.Join(failed...)
}
