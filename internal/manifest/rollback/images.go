package rollback

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// addImages adds the digests of the images that the containers of a pod run, by the references that its manifest has,
// without the digests by which a container may have been started.
func addImages(digests map[string]string, p *v1.Pod) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		c := pod.FindContainer(p, s.Name)
		if _, digest, known := strings.Cut(s.ImageID, "@"); known && c != nil {
			ref, _, _ := strings.Cut(c.Image, "@")
			digests[ref] = digest
		}
	}
}

// update makes the revision that the manifest has one with the images to which it is updated, if there are any, and
// returns their digests by reference; nil if its images are not updated. It also says which registries to ask.
func (s *subject) update() map[string]string {
	first := s.d.Pods[s.keys[0]]
	mode := first.Annotations[pod.AnnotationAutoUpdate]
	if mode == "" {
		return nil
	}
	history, newer := s.recorded.Revisions[s.id], s.recorded.Newer[s.id]
	if s.recorded.Frozen[s.id] {
		newer = nil
	}
	digests, asked, runs := map[string]string{}, map[string]string{}, map[string]string{}
	for _, key := range s.keys {
		if p := s.recorded.Running[key].Pod; p != nil {
			addImages(runs, p)
		}
	}
	for _, c := range pod.AllContainers(first) {
		if strings.Contains(c.Image, "@") || c.ImagePullPolicy == v1.PullNever {
			continue
		}
		digest := history.Update(c.Image, newer[c.Image], s.manifest)
		if digest != "" && mode == pod.AutoUpdateRegistry {
			digests[c.Image] = digest
		}
		if has := cmp.Or(digests[c.Image], runs[c.Image]); has != "" {
			asked[c.Image] = has
		}
	}
	a := workload.AutoUpdate{Pod: first, Images: asked, Notify: mode == pod.AutoUpdateNotify}
	if history != nil {
		a.Failed = history.Failed
	}
	s.d.AutoUpdates[s.id] = a
	if mode != pod.AutoUpdateRegistry {
		return nil
	}
	if len(digests) == 0 {
		return digests
	}
	if s.made != nil {
		w := *s.made
		w.Template = s.updated(w.Template, digests)
		i := slices.Index(s.d.Workloads, s.made)
		s.made, s.d.Workloads[i] = &w, &w // its template is what its pods are counted by
	}
	for _, key := range s.keys {
		p := s.updated(s.d.Pods[key], digests)
		if s.made != nil && !s.d.GivenUIDs[p.UID] {
			manifest.SetUID(p, s.made.Template.UID)
			manifest.Identified(workload.Instance{Pod: p, Workload: s.made})
			if config := p.Annotations[manifest.AnnotationConfig]; config != "" {
				manifest.SetConfig(p, config, false)
			}
		}
		s.d.Pods[key] = p
	}
	return digests
}

// updated returns a copy of p, a pod or a template, with the images of these digests. It is another revision.
func (s *subject) updated(p *v1.Pod, digests map[string]string) *v1.Pod {
	p = p.DeepCopy()
	pod.PinImages(p, digests)
	var texts []string
	for _, ref := range slices.Sorted(maps.Keys(digests)) {
		texts = append(texts, "\nimage:", revisions.Pinned(ref, digests[ref]))
	}
	p.Annotations[manifest.AnnotationManifestHash] = manifest.Digest([]byte(manifest.ManifestHash(p)), texts...)
	if !s.d.GivenUIDs[p.UID] {
		manifest.SetUID(p, pod.UID(manifest.Digest([]byte(p.UID), texts...)))
	}
	return p
}
