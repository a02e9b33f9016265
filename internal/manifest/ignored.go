package manifest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/documents"
	"podrun.io/podrun/internal/pod"
)

// maxWarningLines is how many warnings AnnotationWarnings has.
const maxWarningLines = 20

// findings are what is wrong with one object of a manifest.
type findings struct {
	errs, warnings []decode.Error
	// injected are the names of volumes that are left out.
	injected []string
}

func (f *findings) warn(path, format string, args ...any) {
	f.warnings = append(f.warnings, decode.Error{Path: path, Message: fmt.Sprintf(format, args...)})
}

// ignore removes from p what is accepted but has no meaning here, so that nothing acts on it by
// mistake, and adds the warnings about it to f. The rest is removed by drop, after p was validated.
func (l *loader) ignore(p *v1.Pod, f *findings) {
	p.Status = v1.PodStatus{}
	for _, name := range OwnAnnotations() {
		delete(p.Annotations, name)
	}
	if name := p.Spec.NodeName; l.Rules.IgnoreNodeName && name != "" && name != l.NodeName {
		p.Spec.NodeName = l.NodeName
		f.warn("spec.nodeName", "is another node's name and ignored: this node is %q", l.NodeName)
	}
	for i := range p.Spec.Volumes {
		v, path := &p.Spec.Volumes[i], fmt.Sprintf("spec.volumes[%d]", i)
		if h := v.HostPath; h != nil && h.Path != "" && !filepath.IsAbs(h.Path) {
			f.warn(path+".hostPath.path", "is relative to /: it is %q", filepath.Join("/", h.Path))
		}
		if !documents.IsInjectedToken(p, v) {
			continue
		}
		// It stays in the list until the pod was validated, so that paths of errors are those of the text.
		v.VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
		f.injected = append(f.injected, v.Name)
		f.errs = slices.DeleteFunc(f.errs, func(e decode.Error) bool {
			return strings.HasPrefix(e.Path, path+".projected.sources[") &&
				strings.HasSuffix(e.Path, "].serviceAccountToken")
		})
		f.warn(path, "is left out with its mounts: an API server added it for the service account's token, "+
			"and there is none")
	}
	if why := pod.NeverUpdated(p); why != "" {
		f.warn("metadata.annotations["+pod.AnnotationAutoUpdate+"]", "has no effect: %s", why)
	}
	l.strict(f)
}

// strict makes errors of f's warnings if the rules say so.
func (l *loader) strict(f *findings) {
	if !l.Rules.StrictFields {
		return
	}
	for _, w := range f.warnings {
		f.errs = append(f.errs, decode.Error{Path: w.Path, Message: "Forbidden: --strict-fields: " + w.Message})
	}
	f.warnings = nil
}

// drop removes from p, which was validated, the volumes that ignore has emptied, with their mounts,
// and the metadata that only an API server sets.
func (f *findings) drop(p *v1.Pod) {
	m := &p.ObjectMeta
	m.GenerateName, m.ResourceVersion, m.Generation = "", "", 0
	m.SelfLink = "" //nolint:staticcheck // deprecated, but objects from old clusters have it
	m.CreationTimestamp.Reset()
	m.OwnerReferences, m.Finalizers, m.ManagedFields = nil, nil, nil
	if len(f.injected) == 0 {
		return
	}
	left := func(name string) bool { return slices.Contains(f.injected, name) }
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v v1.Volume) bool { return left(v.Name) })
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return left(m.Name) })
		}
	}
}

// annotateWarnings sets AnnotationWarnings, one line for each warning.
func annotateWarnings(p *v1.Pod, warnings []decode.Error) {
	var lines []string
	for i, w := range warnings {
		if i == maxWarningLines {
			lines = append(lines, fmt.Sprintf("and %d more", len(warnings)-i))
			break
		}
		lines = append(lines, w.Path+": "+w.Message)
	}
	if len(lines) > 0 {
		p.Annotations[AnnotationWarnings] = strings.Join(lines, "\n")
	}
}
