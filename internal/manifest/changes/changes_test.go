package changes

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

func podText(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: '%s'}]}\n", name, image)
}

// fields returns the edited fields of c.
func fields(c Change) string {
	var all []string
	for _, e := range c.Edits {
		all = append(all, e.Field)
	}
	return strings.Join(all, ",")
}

func TestChanges(t *testing.T) {
	t.Parallel()
	load := func(path, text string) *v1.Pod {
		loaded, err := manifest.Load([]byte(text), manifest.LoadOptions{Origin: manifest.Origin{Source: manifest.SourceFile, Path: path}, NodeName: "n"})
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Pods[0]
	}
	set := func(pods ...*v1.Pod) map[pod.Key]*v1.Pod {
		all := map[pod.Key]*v1.Pod{}
		for _, p := range pods {
			all[pod.KeyOf(p)] = p
		}
		return all
	}
	labelled := strings.Replace(podText("edited", "i:2"), "{name: edited}", "{name: edited, labels: {a: b}}", 1)
	many := "apiVersion: v1\nkind: Pod\nmetadata: {name: many}\nspec: {dnsPolicy: Default, restartPolicy: Never, containers: [{name: d, image: 'j:1', args: [x]}]}\n"
	there := set(load("/m/same", podText("same", "i:1")), load("/m/old-name", podText("moved", "i:1")),
		load("/m/edited", podText("edited", "i:1")), load("/m/many", podText("many", "i:1")), load("/m/gone", podText("gone", "i:1")),
		load("/m/bad", podText("bad", "i:1")), load("/m/mended", podText("left", "i:1")))
	d := manifest.Desired{Complete: true, Pods: set(load("/m/same", "# again\n"+podText("same", "i:1")), load("/m/new-name", podText("moved", "i:1")),
		load("/m/edited", labelled), load("/m/many", many), load("/m/new", podText("new", "i:1"))),
		Problems: []manifest.Problem{{Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/m/bad"}, Blind: true, Err: errors.New("is bad")},
			{Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/m/mended"}, Err: errors.New("is bad")}}}
	show := func(changes []Change) string {
		var lines []string
		for _, c := range changes {
			line := fmt.Sprint(c.Action, " ", c.Key.Name, " ", c.Origin.Path, " ", fields(c))
			if c.Why != nil {
				line += c.Why.Error()
			}
			lines = append(lines, strings.TrimSpace(line))
		}
		return strings.Join(lines, "\n")
	}
	want := `keep bad-n /m/bad is bad
replace edited-n /m/edited metadata.labels,spec.containers[0].image
remove gone-n /m/gone
remove left-n /m/mended
replace many-n /m/many spec.containers{c},spec.containers{d},spec.dnsPolicy,spec.restartPolicy
keep moved-n /m/new-name
create new-n /m/new
keep same-n /m/same`
	if got := show(Of(d, there)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	d = manifest.Desired{}
	want = "keep gone-n /m/gone nothing is removed until every source of manifests can be read"
	if got := show(Of(d, set(load("/m/gone", podText("gone", "i:1"))))); got != want {
		t.Errorf("got %s", got)
	}
}

// TestUpdates: an edit of a pod that continues to run is an Update, with what it changes.
func TestUpdates(t *testing.T) {
	t.Parallel()
	const old = `apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: a}}
spec:
  dnsPolicy: Default
  initContainers:
  - {name: i, image: 'i:1', resources: {limits: {memory: 8Mi}}}
  - {name: s, image: 'i:1', restartPolicy: Always, resources: {limits: {memory: 16Mi}}, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]}
  containers:
  - {name: a, image: 'i:1', resources: {limits: {memory: 32Mi}}}
  - {name: b, image: 'i:1', resources: {limits: {memory: 64Mi}}, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]}
`
	load := func(path, text string) *v1.Pod {
		loaded, err := manifest.Load([]byte(text), manifest.LoadOptions{Origin: manifest.Origin{Source: manifest.SourceFile, Path: path}, NodeName: "n"})
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Pods[0]
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"nothing":       {"name: p", "name: p", "keep [] []"},
		"spelling":      {"memory: 32Mi", `memory: "33554432"`, "keep [] []"},
		"a label":       {"app: a", "app: b", "update [metadata.labels.app] []"},
		"an annotation": {"name: p,", "name: p, annotations: {x: z},", "update [metadata.annotations] []"},
		"the deadline":  {"dnsPolicy: Default", "dnsPolicy: Default\n  activeDeadlineSeconds: 9", "update [spec.activeDeadlineSeconds] []"},
		"in place":      {"memory: 32Mi", "memory: 40Mi", "update [spec.containers[0].resources.limits.memory spec.containers[0].resources.requests.memory] []"},
		"by a restart":  {"memory: 64Mi", "memory: 40Mi", "update [spec.containers[1].resources.limits.memory spec.containers[1].resources.requests.memory] [b]"},
		"of a sidecar":  {"memory: 16Mi", "memory: 17Mi", "update [spec.initContainers[1].resources.limits.memory spec.initContainers[1].resources.requests.memory] [s]"},
		"of what ended": {"memory: 8Mi", "memory: 9Mi", "update [spec.initContainers[0].resources.limits.memory spec.initContainers[0].resources.requests.memory] []"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there, wanted := load("/m/old", old), load("/m/new", strings.Replace(old, c.from, c.to, 1))
			there.Annotations[manifest.AnnotationSeen] = "2026-01-01T00:00:00Z"
			d := manifest.Desired{Complete: true, Pods: map[pod.Key]*v1.Pod{pod.KeyOf(wanted): wanted}}
			show := func(there *v1.Pod) string {
				got := Of(d, map[pod.Key]*v1.Pod{pod.KeyOf(there): there})[0]
				return fmt.Sprintf("%s [%s] %s", got.Action, strings.ReplaceAll(fields(got), ",", " "), got.Restarts)
			}
			if got := show(there); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			kept, resized := manifest.Adopt(wanted, there, false)
			if resized != nil { // not allocated yet: the next serve does it
				if got := show(kept); got != c.want {
					t.Errorf("waiting for resources: got %s, want %s", got, c.want)
				}
				kept = resized
			}
			if got := show(kept); got != "keep [] []" {
				t.Errorf("once it is applied: %s", got)
			}
		})
	}
}

// TestManyEdits: a change names the first edits and counts the others.
func TestManyEdits(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{}
	p.Annotations = map[string]string{"": "the whole map is one edit if there was none"}
	edited := p.DeepCopy()
	for i := range 20 {
		edited.Annotations[fmt.Sprint("x", i)] = "y"
	}
	var c Change
	if c.setEdits(p, edited); len(c.Edits) != maxEdits || c.More != 20-maxEdits {
		t.Errorf("%d edits and %d more", len(c.Edits), c.More)
	}
}
