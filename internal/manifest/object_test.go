package manifest

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func said(t *testing.T, file, text string) Snapshot {
	t.Helper()
	from := Origin{Source: SourceFile, Path: file}
	loaded, err := Load([]byte(text), LoadOptions{Origin: from, NodeName: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	return Snapshot{Source: file, Pods: loaded.Pods, GivenUIDs: loaded.GivenUIDs, Objects: loaded.Objects}
}

func merge(all ...Snapshot) Desired {
	w := Sources{Last: map[string]Snapshot{}}
	for _, s := range all {
		w.Order = append(w.Order, s.Source)
		w.Last[s.Source] = s
	}
	return Merge(w)
}

func TestObjectsOfAllSources(t *testing.T) {
	t.Parallel()
	d := merge(
		said(t, "/a", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: first}\n"),
		said(t, "/b", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {k: second}}\n"+
			"- {apiVersion: v1, kind: Secret, metadata: {name: m, namespace: ns}, data: {a: eA==, b: eA==}, stringData: {b: 'y'}}\n"),
	)
	if got := d.Objects.ConfigMaps[pod.Key{Namespace: "default", Name: "m"}]; got == nil || got.Data["k"] != "first" {
		t.Errorf("ConfigMap %+v", got)
	}
	secret := d.Objects.Secrets[pod.Key{Namespace: "ns", Name: "m"}]
	if secret == nil || string(secret.Data["a"]) != "x" || string(secret.Data["b"]) != "y" || len(secret.StringData) != 0 || secret.Type != v1.SecretTypeOpaque {
		t.Errorf("Secret %+v", secret)
	}
	if len(d.Problems) != 1 || d.Problems[0].Err.Error() != "/b: ConfigMap default/m is also in /a, which is used" {
		t.Errorf("problems %v", d.Problems)
	}
}

func TestNoSecretInErrors(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"stringData: {a: 31415}", "stringData: {a: [31415]}", "stringData: {a: {x: 31415}}", "data: {a: 31415}", "data: {a: '31415'}",
		"data: [31415]", "stringData: 31415", "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '31415 x'}",
		"stringData:\n  a: 31415\n bad: indent", "stringData: {a: true31415, a: x}", "stringData: {a: \"31415\n",
	} {
		_, err := Load([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"+data+"\n"), LoadOptions{Origin: Origin{Source: SourceFile, Path: "/f"}})
		if err == nil || strings.Contains(err.Error(), "31415") {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestObjectSize(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"ConfigMap": "Too long", "Secret": "Too long"} {
		field := map[string]string{"ConfigMap": "data", "Secret": "stringData"}[kind]
		_, err := Load([]byte("apiVersion: v1\nkind: "+kind+"\nmetadata: {name: s}\n"+field+": {a: '"+strings.Repeat("x", 1<<20+1)+"'}\n"),
			LoadOptions{Origin: Origin{Source: SourceFile, Path: "/f"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %.200v", kind, err)
		}
	}
}

const rollPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {podrun.io/restart-on-change: "true"}}
spec:
  containers:
  - name: main
    image: i
    env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}]
    envFrom: [{secretRef: {name: s, optional: true}}]
`

func configMap(value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: " + value + "}\n---"
}

func TestRestartOnChange(t *testing.T) {
	t.Parallel()
	key := pod.Key{Namespace: "default", Name: "web-node1"}
	podOf := func(text string) *v1.Pod { return merge(said(t, "/f", text)).Pods[key] }
	first, again, edited := podOf(configMap("a")+rollPod), podOf(configMap("a")+rollPod), podOf(configMap("b")+rollPod)
	if first.UID != again.UID || !SameRun(first, again) {
		t.Error("the same manifests make another pod")
	}
	if first.UID == edited.UID || SameRun(first, edited) {
		t.Error("an edited ConfigMap makes the same pod")
	}
	withSecret := podOf(configMap("a") + "\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---" + rollPod)
	if SameRun(first, withSecret) {
		t.Error("a Secret that came makes the same pod")
	}
	if gone := podOf(rollPod); !SameRun(first, gone) {
		t.Error("a ConfigMap that went makes another pod")
	} else if KeepConfig(gone, first); gone.Annotations[AnnotationConfig] != first.Annotations[AnnotationConfig] {
		t.Error("the mark is lost")
	}
	// A UID that the manifest gives stays, also one in the form of those that podrun makes.
	for _, uid := range []string{"web.1", "0123456789abcdef0123456789abcdef"} {
		fixed := strings.Replace(rollPod, "{name: web", "{uid: "+strconv.Quote(uid)+", name: web", 1)
		a, b, gone := podOf(configMap("a")+fixed), podOf(configMap("b")+fixed), podOf(fixed)
		if string(a.UID) != uid || string(b.UID) != uid || SameRun(a, b) || !SameRun(a, gone) || string(gone.UID) != uid {
			t.Errorf("uid %s: %+v, %+v, %+v", uid, a.ObjectMeta, b.ObjectMeta, gone.ObjectMeta)
		}
	}
	for _, p := range []*v1.Pod{first, edited, withSecret, podOf(strings.Replace(rollPod, "{name: web", "{uid: u, name: web", 1))} {
		if p.Annotations[AnnotationHash] != string(p.UID) {
			t.Errorf("uid %s, but log collectors are told %s", p.UID, p.Annotations[AnnotationHash])
		}
	}
	plain := strings.Replace(rollPod, `"true"`, `"false"`, 1)
	if a, b := podOf(configMap("a")+plain), podOf(configMap("b")+plain); a.UID != b.UID || !SameRun(a, b) {
		t.Error("a pod that did not ask for it is another after an edit of its ConfigMap")
	}
}

// A running pod gets no new config hash while a source has not been read.
func TestNoRestartWhileUnsure(t *testing.T) {
	t.Parallel()
	key := pod.Key{Namespace: "default", Name: "web-node1"}
	s := said(t, "/b", configMap("b")+rollPod)
	w := Sources{Order: []string{"/b", "/a"}, Last: map[string]Snapshot{"/b": s}}
	before := Merge(w).Pods[key]
	if before.Annotations[AnnotationConfig] == "" {
		t.Error("a pod that starts has no mark")
	}
	w.Running = map[pod.Key]Origin{key: OriginOf(before)}
	if p := Merge(w).Pods[key]; p.Annotations[AnnotationConfig] != "" || !SameRun(before, p) {
		t.Error("a pod that runs is judged by half of the manifests")
	}
}

// TestPartialObjects checks that Objects.Partial is set until every source that may define a
// missing object was read.
func TestPartialObjects(t *testing.T) {
	t.Parallel()
	s := said(t, "/a", configMap("a")+rollPod)
	bad := s
	bad.Problems = []Problem{{Origin: Origin{Source: SourceFile, Path: "/a/x"}, Blind: true, Err: errors.New("x")}}
	edited := s
	edited.Problems = []Problem{{Origin: Origin{Source: SourceFile, Path: "/a/x"}, Err: errors.New("x")}}
	for _, c := range []struct {
		name  string
		order []string
		said  Snapshot
		want  bool
	}{
		{"all is read", []string{"/a"}, s, false},
		{"a source has yet to speak", []string{"/a", "/b"}, s, true},
		{"a file was never good", []string{"/a"}, bad, true},
		{"a file turned bad", []string{"/a"}, edited, false},
	} {
		if got := Merge(Sources{Order: c.order, Last: map[string]Snapshot{"/a": c.said}}).Objects.Partial; got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	key := pod.Key{Namespace: "default", Name: "web-node1"}
	d := merge(said(t, "/f", rollPod))
	if got := d.Missing(d.Pods[key]); len(got) != 1 || got[0] != (Ref{Kind: "ConfigMap", Name: "m"}) {
		t.Errorf("%+v", got)
	}
}
