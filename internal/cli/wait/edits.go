package wait

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// readAgain is after what time the manifests are read again while what there is differs from them.
const readAgain = 2 * time.Second

// edits reads the manifests as they are now: what serve has not read yet must not be taken for done.
func (l *waiting) edits(ctx context.Context) {
	l.read = time.Now()
	if d, is := l.Serve.Desired(ctx); is && d.Complete {
		l.wanted = &d
	}
}

// formerPod reports that a pod is of a manifest that was edited meanwhile.
func (l *waiting) formerPod(p *v1.Pod) bool {
	if l.wanted == nil {
		return false
	}
	now := l.wanted.Pods[pod.KeyOf(p)]
	former := now != nil && !sameEdit(p, now)
	l.differs = l.differs || former
	return former
}

// refusedPod returns why the manifest of a pod cannot be used; nil if it can be.
func (l *waiting) refusedPod(p *v1.Pod) error {
	if l.wanted == nil || l.wanted.Pods[pod.KeyOf(p)] != nil {
		return nil
	}
	for _, problem := range l.wanted.Problems {
		if problem.Origin == manifest.OriginOf(p) || problem.Keeps(p) {
			return cannotBeUsed("pod "+p.Name, problem.Err)
		}
	}
	return nil
}

func cannotBeUsed(what string, why error) error {
	return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("the manifest of %s cannot be used: %w", what, why)}
}

// sameEdit reports that two pods are of the same edit of a manifest, and of its ConfigMaps.
func sameEdit(a, b *v1.Pod) bool {
	const config = manifest.AnnotationConfig
	return manifest.ManifestHash(a) == manifest.ManifestHash(b) && a.Annotations[config] == b.Annotations[config]
}

// formerObject reports that serve has not read the manifest of a workload as it was when wait read it. refused is why
// it cannot use it.
func (l *waiting) formerObject(o *query.Object) (former bool, refused error) {
	if l.wanted == nil || o == nil {
		return false, nil
	}
	for _, w := range l.wanted.Workloads {
		if w.ID == o.ID {
			former = o.Summary.Hash != manifest.ManifestHash(w.Template)
			l.differs = l.differs || former
			return former, nil
		}
	}
	for _, problem := range l.wanted.Problems {
		if o.Manifest != "" && problem.Origin.Path == o.Manifest {
			return false, cannotBeUsed(o.ID.String(), problem.Err)
		}
	}
	return false, nil
}
