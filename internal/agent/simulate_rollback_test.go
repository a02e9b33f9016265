package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/workload/revisions"
)

// simulatedRoll is the name of the simulation's Deployment, whose revisions are rolled back.
const simulatedRoll = "roll"

// rolls is what has become of the versions of the Deployment, by their labels. Guarded by the world's mutex.
type rolls struct {
	wanted string    // by the manifest; "": none
	since  time.Time // when the manifest changed last
	ready  map[string]bool
	// refused is when the wanted version was shown as rolled back for the first time; zero: it was not.
	refused time.Time
	// pushed has the versions of which the registry has got another image, by whether that works.
	pushed map[string]bool
}

// The digests of what the registry gets.
const goodDigest, badDigest = "sha256:good", "sha256:bad"

// pushRoll has the registry get another image of a version, some time after this is offered, and has the pods be updated
// to it. Many versions have none.
func (s *simulation) pushRoll(n int, image string, template *v1.PodTemplateSpec) {
	w, d := s.w, scatter(s.w.seed, "push", uint64(n))
	if w.badRoll(n) || !chance(d, 3) {
		return
	}
	template.Annotations[pod.AnnotationAutoUpdate] = pod.AutoUpdateRegistry
	works := n%3 == 0 || chance(d>>8, 2) // a probe might find it ready at a good moment
	time.AfterFunc(between(d, 10*time.Second, 2*time.Minute), func() {
		w.set(func() { w.rolls.pushed[fmt.Sprint(n)] = works })
		digest := goodDigest
		if !works {
			digest = badDigest
		}
		w.engine.Push(image, digest, fake.Script{})
	})
}

// mayFail reports that version n does not work, or that another image of it does not.
func (w *world) mayFail(n int) bool {
	works, pushed := w.rolls.pushed[fmt.Sprint(n)]
	return w.badRoll(n) || pushed && !works
}

// badRoll reports that version n crashes at once.
func (w *world) badRoll(n int) bool { return chance(scatter(w.seed, "roll", uint64(n)), 2) }

// putRoll offers version n of the Deployment, or none.
func (s *simulation) putRoll(n int) {
	path := filepath.Join(s.o.Sources.Manifests[0], "roll.yaml")
	s.w.set(func() {
		s.w.rolls.wanted, s.w.rolls.since, s.w.rolls.refused = "", time.Now(), time.Time{}
		if n > 0 {
			s.w.rolls.wanted = fmt.Sprint(n)
		}
	})
	if n == 0 {
		_ = os.Remove(path)
		return
	}
	s.texts++
	d := appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Name: simulatedRoll, Annotations: map[string]string{"pad": fmt.Sprintf("%0*d", s.texts, 0)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1 + n%2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			ProgressDeadlineSeconds: ptr.To[int32](20),
		},
	}
	d.Spec.Template.Labels = map[string]string{"a": "b", "n": fmt.Sprint(n)}
	d.Spec.Template.Annotations = map[string]string{pod.AnnotationRollback: "true"}
	image := fmt.Sprintf("roll:%d", n)
	if s.w.badRoll(n) {
		image = fmt.Sprintf("bad-roll:%d", n)
	}
	s.w.engine.AddImage(image, fake.Script{})
	c := v1.Container{Name: "a", Image: image}
	if n%3 == 0 && !s.w.badRoll(n) { // which a probe might find ready at a good moment
		c.ReadinessProbe = simulatedProbe("ready", 5)
	}
	if hasPort(n) {
		c.Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	}
	s.pushRoll(n, image, &d.Spec.Template)
	d.Spec.Template.Spec = v1.PodSpec{Containers: []v1.Container{c}, TerminationGracePeriodSeconds: ptr.To[int64](5)}
	s.putObject(path, d)
}

// hasPort reports that version n has a host port, and thus one replica, which shares it with the pod that there is for
// the update.
func hasPort(n int) bool { return n%2 == 0 }

// changeRoll has the Deployment come, change, change back or go.
func (s *simulation) changeRoll() {
	switch s.r.IntN(5) {
	case 0:
		s.roll = 0
	case 1:
		s.roll, s.lastRoll = s.lastRoll, s.roll
	default:
		s.lastRoll, s.roll = s.roll, s.next()
	}
	s.putRoll(s.roll)
}

func isRoll(p *v1.Pod) bool { return strings.HasPrefix(p.Name, simulatedRoll+"-") }

// readLate is how long ago a manifest must have changed for serve to have acted on it, whatever fails.
const readLate = longestHang

// rolledBackRightly: what a revision is rolled back to has been ready.
func rolledBackRightly(w *world, p *v1.Pod) string {
	if !isRoll(p) {
		return ""
	}
	n, rolledBack := p.Labels["n"], p.Annotations[manifest.AnnotationRolledBack] != ""
	switch {
	case rolledBack && strings.HasPrefix(p.Spec.Containers[0].Image, "bad-"):
		return fmt.Sprintf("it is rolled back to version %s, which is bad", n)
	case rolledBack && strings.HasSuffix(p.Spec.Containers[0].Image, badDigest):
		return fmt.Sprintf("it is rolled back to another image of version %s, which is bad", n)
	case rolledBack && !w.rolls.ready[n]:
		return fmt.Sprintf("it is rolled back to version %s, which was never ready", n)
	case rolledBack && w.rolls.refused.IsZero() && w.rolls.wanted != n && time.Since(w.rolls.since) > time.Minute:
		w.rolls.refused = time.Now()
	case !rolledBack && pod.IsReady(p):
		w.rolls.ready[n] = true
	}
	return ""
}

// notTriedAgain: a revision that is rolled back does not start again as long as the manifest has it.
func notTriedAgain(w *world, i *instance) string {
	at := w.rolls.refused
	if !isRoll(i.pod) || i.pod.Labels["n"] != w.rolls.wanted || at.IsZero() || time.Since(at) < readLate {
		return ""
	}
	return fmt.Sprintf("version %s was rolled back %s ago", w.rolls.wanted, time.Since(at))
}

// rollSettled reports that the roll-out or the roll-back of the Deployment is over; why says that it is not.
func (w *world) rollSettled() (why string) {
	if why := w.rollRuns(); why != "" || w.recordedRoll().Overdue {
		return why
	}
	var n int
	w.set(func() { _, _ = fmt.Sscan(w.rolls.wanted, &n) })
	for i := 1 + n%2; i < 5; i++ {
		key := pod.Key{Namespace: "default", Name: fmt.Sprintf("%s-%d", simulatedRoll, i)}
		if left := w.remains(key); len(left) > 0 {
			return fmt.Sprintf("%s is beyond the replicas: %s", key.Name, left[0])
		}
	}
	return ""
}

// rollRuns reports that the pods of the Deployment run what they should; why says that they do not.
func (w *world) rollRuns() (why string) {
	h := w.recordedRoll()
	w.mu.Lock()
	defer w.mu.Unlock()
	var n int
	if _, err := fmt.Sscan(w.rolls.wanted, &n); err != nil {
		return err.Error()
	}
	if h == nil {
		return "its revisions are not recorded"
	}
	runs := w.rolls.wanted
	switch {
	case h.Overdue && !w.mayFail(n):
		return "it is overdue, and is good"
	case h.Overdue:
		return "" // there is none to go back to
	case h.Tried != "":
		return "it is being tried"
	case h.RolledBack != "":
		runs = h.Good.Template.Labels["n"]
	case w.badRoll(n):
		return "a bad version is taken for good"
	}
	var used int
	if _, err := fmt.Sscan(runs, &used); err != nil {
		return err.Error()
	}
	replicas := 1 + n%2
	if hasPort(used) {
		replicas = 1
	}
	for i := range replicas {
		name := fmt.Sprintf("%s-%d", simulatedRoll, i)
		p := w.statuses[pod.Key{Namespace: "default", Name: name}]
		if p == nil || p.Labels["n"] != runs || !pod.IsReady(p) {
			return fmt.Sprintf("%s is not ready in version %s", name, runs)
		}
		image := p.Spec.Containers[0].Image
		if w.rolls.pushed[runs] && h.RolledBack == "" && !strings.HasSuffix(image, goodDigest) {
			return fmt.Sprintf("%s is not updated: %s", name, image)
		}
		if rolledBack := p.Annotations[manifest.AnnotationRolledBack] != ""; rolledBack != (h.RolledBack != "") {
			return fmt.Sprintf("%s: rolled back: %v", name, rolledBack)
		}
	}
	return ""
}

// recordedRoll returns what is recorded of the Deployment; nil if nothing is. It needs no mutex of the world's.
func (w *world) recordedRoll() *revisions.History {
	texts, err := w.disk.ReadRuns()
	text := texts["Deployment_default_"+simulatedRoll]
	var r checkpoint.Run
	h := &revisions.History{}
	if err != nil || text == nil || json.Unmarshal(text, &r) != nil || json.Unmarshal(r.History, h) != nil {
		return nil
	}
	return h
}

// rollRemains says what is left of the Deployment.
func (w *world) rollRemains() []string {
	left := w.podsRemain(simulatedRoll + "-")
	if w.recordedRoll() != nil {
		left = append(left, "its recorded revisions")
	}
	return left
}
