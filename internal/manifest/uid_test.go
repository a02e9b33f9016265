package manifest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// The test vectors must never change: a pod whose UID changed with a new version of podrun would be
// replaced.
func TestIdentityVectors(t *testing.T) {
	t.Parallel()
	type identity struct{ Name, UID, Hash string }
	var vectors []struct {
		About, Manifest, Node, Source, Path string
		Pods                                []identity
	}
	if err := json.Unmarshal(read(t, "../../testdata/identity/vectors.json"), &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 8 {
		t.Fatalf("%d vectors", len(vectors))
	}
	for _, v := range vectors {
		o := LoadOptions{Origin: Origin{Source: v.Source, Path: v.Path}, NodeName: v.Node}
		if v.Source == SourceHTTP {
			o.Kind = SourceKind{Name: SourceHTTP, Identity: "url:"}
		}
		loaded, err := Load([]byte(v.Manifest), o)
		if err != nil {
			t.Fatal(err)
		}
		var got []identity
		for _, p := range loaded.Pods {
			got = append(got, identity{p.Name, string(p.UID), p.Annotations[AnnotationManifestHash]})
		}
		if !slices.Equal(got, v.Pods) {
			t.Errorf("%s on %s at %s:\ngot  %v\nwant %v", v.About, v.Node, v.Path, got, v.Pods)
		}
	}
}

// A manifest that is only spelled differently has the same UID; an edited one has another.
func TestIdentityIsOfTheContent(t *testing.T) {
	t.Parallel()
	one := func(text string) *v1.Pod {
		loaded, err := Load([]byte(text), options("/a.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Pods[0]
	}
	const text = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: c
    image: "i:1"
    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 0.5}}
`
	first := one(text)
	for _, same := range []string{
		"# comment\n---\n" + text,
		strings.ReplaceAll(text, "\n", "\r\n"),
		strings.Replace(text, "80", "0x50", 1),
		strings.Replace(text, "0.5", "5.0e-1", 1),
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":0.50}},"ports":[{"containerPort":80}],"image":"i:1","name":"c"}]},
		  "metadata":{"labels":{"app":"web"},"name":"web"},"kind":"Pod","apiVersion":"v1"}`,
	} {
		if p := one(same); p.UID != first.UID || p.Annotations[AnnotationManifestHash] != first.Annotations[AnnotationManifestHash] {
			t.Errorf("another identity for\n%s", same)
		}
	}
	for _, other := range []string{
		strings.Replace(text, "i:1", "i:2", 1),
		strings.Replace(text, "app: web", "app: x", 1),
		text + "  restartPolicy: Always\n",
	} {
		if p := one(other); p.UID == first.UID {
			t.Errorf("the same identity for\n%s", other)
		}
	}
}

// TestNoSuffix checks that NoSuffix leaves the names of pods as in their manifests and changes
// nothing else.
func TestNoSuffix(t *testing.T) {
	t.Parallel()
	load := func(noSuffix bool, name string) (*v1.Pod, error) {
		loaded, err := Load([]byte(podText(name, "i:1")), LoadOptions{Origin: Origin{Source: SourceFile, Path: "/p/a.yaml"}, NodeName: "Node1", NoSuffix: noSuffix})
		if err != nil {
			return nil, err
		}
		return loaded.Pods[0], nil
	}
	with, err := load(false, "web")
	if err != nil {
		t.Fatal(err)
	}
	without, err := load(true, "web")
	if err != nil {
		t.Fatal(err)
	}
	if with.Name != "web-node1" || without.Name != "web" || without.UID != with.UID || without.Spec.NodeName != "node1" {
		t.Errorf("%s %s, %s %s on %s", with.Name, with.UID, without.Name, without.UID, without.Spec.NodeName)
	}
	// What more follows a dash is missing.
	if _, err := load(true, "web-"); err == nil || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("a name that ends in a dash: %v", err)
	}
	if _, err := load(false, "web-"); err != nil {
		t.Errorf("a name that ends in a dash before the node's: %v", err)
	}
}

func TestSameRun(t *testing.T) {
	t.Parallel()
	one := func(path, text string) *v1.Pod {
		loaded, err := Load([]byte(text), options(path))
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Pods[0]
	}
	text := podText("a", "i:1")
	running := one("/a.yaml", text)
	running.Annotations[AnnotationSeen] = "then"
	cases := []struct {
		name   string
		wanted *v1.Pod
		want   bool
	}{
		{"renamed", one("/b.yaml", text), true},
		{"a default spelled out", one("/a.yaml", text+"  \n#\n"), true},
		{"other words", one("/a.yaml", strings.Replace(text, "image:", "imagePullPolicy: IfNotPresent, image:", 1)), true},
		{"another image", one("/a.yaml", podText("a", "i:2")), false},
		{"a label", one("/a.yaml", strings.Replace(text, "name: a", "name: a, labels: {x: z}", 1)), true},
		{"an annotation", one("/a.yaml", strings.Replace(text, "name: a", "name: a, annotations: {x: z}", 1)), true},
		{"another network", one("/a.yaml", strings.Replace(text, "name: a", "name: a, annotations: {k8s.v1.cni.cncf.io/networks: storage}", 1)), false},
		{"a device by annotation", one("/a.yaml", strings.Replace(text, "name: a", "name: a, annotations: {cdi.k8s.io/gpu: v.io/gpu=0}", 1)), false},
		{"a deadline", one("/a.yaml", strings.Replace(text, "spec: {", "spec: {activeDeadlineSeconds: 9, ", 1)), true},
		{"another class", one("/a.yaml", strings.Replace(text, "image:", "resources: {requests: {cpu: 1}}, image:", 1)), false},
		{"a grace period", one("/a.yaml", strings.Replace(text, "spec: {", "spec: {terminationGracePeriodSeconds: 9, ", 1)), false},
		{"another pod", one("/a.yaml", podText("b", "i:1")), false},
	}
	for _, c := range cases {
		if got := SameRun(running, c.wanted); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	burstable := func(cpu string) *v1.Pod {
		return one("/a.yaml", strings.Replace(text, "image:", "resources: {requests: {cpu: "+cpu+"}}, image:", 1))
	}
	if !SameRun(burstable("1"), burstable("2")) {
		t.Error("CPU alone must not replace a pod")
	}
	// The same words keep a pod whose defaults an older version saw otherwise.
	old := one("/a.yaml", text)
	old.Spec.SchedulerName = "old"
	if !SameRun(old, running) {
		t.Error("a new default must not replace a pod")
	}
	// So they do when the older version kept the manifest's hash where the UID is now.
	former := formerVersion(old)
	if !SameRun(former, running) || !SameRun(former, one("/b.yaml", text)) {
		t.Error("a pod of the former version is replaced by its own manifest")
	}
	if SameRun(former, one("/a.yaml", podText("a", "i:2"))) {
		t.Error("a pod of the former version stays though its image is edited")
	}
}

// formerVersion returns a pod as podrun's former version kept it: config.hash was the manifest's
// hash.
func formerVersion(p *v1.Pod) *v1.Pod {
	former := p.DeepCopy()
	former.Annotations[AnnotationHash] = p.Annotations[AnnotationManifestHash]
	delete(former.Annotations, AnnotationManifestHash)
	return former
}

func TestUpgraded(t *testing.T) {
	t.Parallel()
	loaded, err := Load([]byte(podText("a", "i:1")), options("/a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p := loaded.Pods[0]
	former := formerVersion(p)
	before := former.DeepCopy()
	if up := Upgraded(former); !equality.Semantic.DeepEqual(up, p) || !equality.Semantic.DeepEqual(former, before) {
		t.Errorf("%v becomes %v", before.Annotations, up.Annotations)
	}
	if Upgraded(p) != p {
		t.Error("a pod of this version is changed")
	}
	if bare := (&v1.Pod{}); Upgraded(bare) != bare {
		t.Error("a pod without a hash is changed")
	}
}

// TestDocumentOfJob: a run is of what the document says and of the node, whatever file has it.
func TestDocumentOfJob(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: work}\nspec:\n" +
		"  template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'i:1'}]}}\n"
	document := func(text, path, node string) string {
		o := options(path)
		o.NodeName = node
		loaded, err := Load([]byte(text), o)
		if err != nil || len(loaded.Workloads) != 1 {
			t.Fatal(loaded, err)
		}
		return loaded.Workloads[0].Document
	}
	first := document(text, "/a.yaml", "n")
	if document("# again\n"+text, "/b.yaml", "n") != first {
		t.Error("another file is another document")
	}
	if document(strings.Replace(text, "i:1", "i:2", 1), "/a.yaml", "n") == first || document(text, "/a.yaml", "m") == first {
		t.Error("what it says, or the node, makes no other document")
	}
}
