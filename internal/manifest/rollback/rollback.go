// Package rollback puts, in place of the pods of a revision that has not become healthy in time, those of the last one
// that was: a stage between the documents of all sources and the pods that are desired. What is healthy and which
// revision runs is package revisions' decision.
//
// Begin reading at Rollback.Apply.
package rollback

import (
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// Deadline is for how long a revision may be tried by default.
const Deadline = 2 * time.Minute

// Rollback says which revisions are rolled back.
type Rollback struct {
	// All says that those without pod.AnnotationRollback are, too.
	All bool
	// Refusal returns why a pod is not allowed now; "" if it is. It may be nil.
	Refusal func(*v1.Pod) string
}

// Apply changes the pods of d to those of the revisions that run, and adds the histories of these.
func (r Rollback) Apply(d *manifest.Desired, recorded workload.Recorded) {
	d.AutoUpdates = map[workload.ID]workload.AutoUpdate{}
	d.Revisions, d.Former = map[workload.ID]*revisions.History{}, map[pod.Key]pod.Objects{}
	made := map[workload.ID]*workload.Workload{}
	for _, w := range d.Workloads {
		made[w.ID] = w
	}
	subjects := map[workload.ID][]pod.Key{}
	for _, key := range slices.SortedFunc(maps.Keys(d.Pods), pod.Key.Compare) {
		if id := Of(d.Pods[key]); id.Kind != workload.Job {
			subjects[id] = append(subjects[id], key)
		}
	}
	for id, keys := range subjects {
		s := subject{Rollback: r, d: d, recorded: recorded, id: id, keys: keys, made: made[id]}
		s.manifest = IDOf(d.Pods[keys[0]])
		updates := s.update()
		if r.enabled(d.Pods[keys[0]]) {
			s.apply(updates)
		}
	}
	for id, h := range recorded.Revisions {
		unread := !d.Complete || len(d.Problems) > 0 // it may be in a manifest that cannot be read
		if _, here := subjects[id]; !here && (unread || made[id] != nil) {
			d.Revisions[id] = h
		}
	}
}

// Of returns what a pod is a revision of: its workload, or the pod itself.
func Of(p *v1.Pod) workload.ID {
	if id, is := workload.Of(p); is {
		return id
	}
	return workload.ID{Kind: workload.Pod, Key: pod.KeyOf(p)}
}

// IDOf returns the ID of the revision that a pod is of.
func IDOf(p *v1.Pod) string {
	return manifest.Digest([]byte(manifest.ManifestHash(p)), "\nconfig:", p.Annotations[manifest.AnnotationConfig])
}

func (r Rollback) enabled(p *v1.Pod) bool {
	given, is := p.Annotations[pod.AnnotationRollback]
	return given == "true" || !is && (r.All || p.Annotations[pod.AnnotationAutoUpdate] == pod.AutoUpdateRegistry)
}

// subject is a pod, or a workload, whose revisions are rolled back.
type subject struct {
	Rollback
	d        *manifest.Desired
	recorded workload.Recorded
	id       workload.ID
	keys     []pod.Key
	made     *workload.Workload // nil for a pod
	manifest string             // identifies what the manifest is, without updates of its images
}

// apply decides which revision runs. updates are the digests that the one of the manifest includes.
func (s *subject) apply(updates map[string]string) {
	history, first := s.recorded.Revisions[s.id], s.d.Pods[s.keys[0]]
	wanted := s.revision(first)
	if history != nil {
		s.d.Revisions[s.id] = history
	}
	// While a ConfigMap is missing it is not known which revision is wanted, and what runs goes on.
	unknown := first.Annotations[manifest.AnnotationRestart] == "true" && wanted.Config == ""
	if unknown && history != nil && history.RolledBack != "" {
		s.use(history.Good, history.Reason())
	}
	if unknown {
		return
	}
	if s.recorded.Frozen[s.id] {
		if use, is := revisions.Chosen(history, wanted.ID); is {
			s.use(use, history.Reason())
		} else {
			s.pin(history.Pins(wanted.ID))
		}
		return
	}
	health, images := s.health(wanted.ID)
	v := revisions.Judge(revisions.Input{
		History: history, Wanted: wanted, Health: health, Images: images, Updates: updates, Manifest: s.manifest,
		Tried: s.recorded.Tried[s.id], Deadline: s.deadline(first) + grace(history), Now: s.recorded.Now,
		Undo: s.recorded.Undo[revisions.Undo{
			Kind: string(s.id.Kind), Namespace: s.id.Key.Namespace, Name: s.id.Key.Name, Revision: wanted.ID,
		}],
	})
	s.d.Revisions[s.id] = v.History
	if at := s.recorded.Now.Add(v.Wait); v.Wait > 0 && (s.d.Next.IsZero() || at.Before(s.d.Next)) {
		s.d.Next = at
	}
	if v.Use != wanted {
		s.use(v.Use, v.History.Reason())
	} else {
		s.pin(v.History.Pins(wanted.ID))
	}
}

// pin has the pods that the manifest has run the images with these digests, by reference.
func (s *subject) pin(digests map[string]string) {
	if len(digests) == 0 {
		return
	}
	for _, key := range s.keys {
		p := s.d.Pods[key].DeepCopy()
		pod.PinImages(p, digests)
		s.d.Pods[key] = p
	}
}

// revision returns the revision that the manifest has.
func (s *subject) revision(p *v1.Pod) *revisions.Revision {
	r := &revisions.Revision{ID: IDOf(p), Template: p, Config: p.Annotations[manifest.AnnotationConfig]}
	if s.made != nil {
		r.Template = s.made.Template
	}
	if r.Config == "" {
		return r
	}
	r.ConfigMaps, r.Secrets = map[string]*v1.ConfigMap{}, map[string]*v1.Secret{}
	for _, ref := range manifest.Refs(p) {
		key := pod.Key{Namespace: p.Namespace, Name: ref.Name}
		if m := s.d.Objects.ConfigMaps[key]; m != nil && ref.Kind == manifest.KindConfigMap {
			r.ConfigMaps[ref.Name] = m
		}
		if m := s.d.Objects.Secrets[key]; m != nil && ref.Kind == manifest.KindSecret {
			r.Secrets[ref.Name] = m
		}
	}
	if size(r.ConfigMaps) > maxConfigMaps {
		r.ConfigMaps = nil
	}
	return r
}

// maxConfigMaps is how many bytes the ConfigMaps of a revision may have together to be kept with it: each pod has a
// copy of them in its record. It is what Kubernetes allows one to have.
const maxConfigMaps = v1.MaxSecretSize

func size(all map[string]*v1.ConfigMap) (n int) {
	for _, m := range all {
		for _, value := range m.Data {
			n += len(value)
		}
		for _, value := range m.BinaryData {
			n += len(value)
		}
	}
	return n
}

// health returns the health of the pods, if they are of the revision, and the digests of the images that they run.
func (s *subject) health(id string) (health revisions.Health, images map[string]string) {
	images = map[string]string{}
	settled := time.Duration(0)
	if s.made != nil {
		settled = workload.MinReady(s.made.Object)
	}
	all, waiting := map[string]revisions.Health{}, map[string]revisions.Health{}
	for _, key := range append(slices.Clone(s.keys), s.beyond(id)...) {
		seen := s.recorded.Running[key]
		if seen.Pod != nil && IDOf(seen.Pod) != id {
			seen = revisions.Observed{}
		}
		h := revisions.HealthOf(seen, settled)
		if h.Unsure {
			s.d.Inspect = append(s.d.Inspect, key)
		}
		if seen.Pod == nil {
			waiting[key.Name] = h
			continue
		}
		all[key.Name] = h
		addImages(images, seen.Pod)
	}
	// What has not started may wait for what is not healthy: that is the reason.
	if started := revisions.Join(all); started.State != revisions.Well || len(waiting) == 0 {
		return started, images
	}
	return revisions.Join(waiting), images
}

// beyond returns the keys of the pods of the revision that there are for the update alone.
func (s *subject) beyond(id string) []pod.Key {
	var all []pod.Key
	group, _ := pod.UpdateGroup(s.d.Pods[s.keys[0]])
	for key, seen := range s.recorded.Running {
		if seen.Pod == nil || IDOf(seen.Pod) != id {
			continue
		}
		if of, surge := pod.UpdateGroup(seen.Pod); surge && of == group {
			all = append(all, key)
		}
	}
	return all
}

// grace returns how long the pods of the former revision may take to end, before which no other one starts.
func grace(h *revisions.History) time.Duration {
	if h == nil || h.Good == nil {
		return 0
	}
	if given := h.Good.Template.Spec.TerminationGracePeriodSeconds; given != nil {
		return max(pod.Seconds(*given), leastGrace)
	}
	return pod.Seconds(v1.DefaultTerminationGracePeriodSeconds)
}

// leastGrace is what a container has at least.
const leastGrace = 2 * time.Second

func (s *subject) deadline(p *v1.Pod) time.Duration {
	if seconds, err := strconv.Atoi(p.Annotations[pod.AnnotationProgressDeadline]); err == nil && seconds > 0 {
		return pod.Seconds(int64(seconds))
	}
	if s.made != nil {
		if o, is := s.made.Object.(*appsv1.Deployment); is && o.Spec.ProgressDeadlineSeconds != nil {
			return pod.Seconds(int64(*o.Spec.ProgressDeadlineSeconds))
		}
	}
	return Deadline
}

// use puts the pods of a former revision in place of those that the manifest has, unless they are not allowed any more.
func (s *subject) use(r *revisions.Revision, reason string) {
	pods := s.pods(r)
	for _, key := range s.keys {
		if p := pods[key]; p == nil || s.Refusal != nil && s.Refusal(p) != "" {
			return
		}
	}
	for i, key := range s.keys {
		p, wanted := pods[key], s.d.Pods[key]
		if i > 0 && len(pod.HostPorts(p)) > 0 {
			delete(s.d.Pods, key) // it could never have the port beside the first one
			continue
		}
		p.Spec.NodeName = wanted.Spec.NodeName
		if !manifest.SameRun(p, wanted) { // else its containers go on
			pod.PinImages(p, r.Images)
		}
		from := manifest.OriginOf(wanted) // the file may have another name now
		manifest.Annotate(p, manifest.AnnotationSource, from.Source)
		manifest.Annotate(p, manifest.AnnotationManifest, from.Path)
		manifest.Annotate(p, manifest.AnnotationRolledBack, reason)
		s.d.Pods[key] = p
		if r.Config != "" {
			s.d.Former[key] = s.objects(r, p.Namespace)
		}
	}
}

// pods returns the pods of a revision.
func (s *subject) pods(r *revisions.Revision) map[pod.Key]*v1.Pod {
	if s.made == nil {
		return map[pod.Key]*v1.Pod{pod.KeyOf(r.Template): r.Template.DeepCopy()}
	}
	w := *s.made
	w.Template = r.Template
	all := map[pod.Key]*v1.Pod{}
	for _, one := range workload.Expand([]*workload.Workload{&w}, workload.Recorded{}).Pods {
		p := manifest.Identified(one)
		if r.Config != "" {
			manifest.SetConfig(p, r.Config, false)
		}
		all[pod.KeyOf(p)] = p
	}
	return all
}

// objects returns what pods of a revision may refer to: what it had and, for what is not stored, what there is now.
func (s *subject) objects(r *revisions.Revision, namespace string) pod.Objects {
	all := s.d.Objects
	all.ConfigMaps, all.Secrets = maps.Clone(all.ConfigMaps), maps.Clone(all.Secrets)
	for name, m := range r.ConfigMaps {
		all.ConfigMaps[pod.Key{Namespace: namespace, Name: name}] = m
	}
	for name, m := range r.Secrets {
		all.Secrets[pod.Key{Namespace: namespace, Name: name}] = m
	}
	return all
}
