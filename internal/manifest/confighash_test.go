package manifest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/pod"
)

// TestConfigHashIsKept: the hashes that running pods have are those that an earlier podrun made of the whole content.
// Another one would restart them when podrun is upgraded.
func TestConfigHashIsKept(t *testing.T) {
	t.Parallel()
	none := strings.NewReplacer("    env:", "#", "    envFrom:", "#").Replace(rollPod)
	secret := "\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: \"a\\\"b\"}\n---"
	for want, text := range map[string]string{
		"4f53cda18c2baa0c0354bb5f9a3ecbe5": none,
		"229010ae5fb3bea98c517816ac14f34a": configMap("a") + rollPod,
		"804fc24da8df36351d369e8114c31a58": configMap("a") + secret + rollPod,
		"0d53ee94987e72ab69a38d8d3117cdf1": configMap(strings.Repeat("a", 1<<19)) + secret + rollPod,
	} {
		p := merge(said(t, "/f", text)).Pods[pod.Key{Namespace: "default", Name: "web-node1"}]
		if got := p.Annotations[AnnotationConfig]; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestConfigHashOfLarge: the hash of content that is hashed by the digests of its objects is another one after each edit,
// and on both sides of the limit.
func TestConfigHashOfLarge(t *testing.T) {
	t.Parallel()
	of := func(value, secret string) string {
		text := configMap(value) + "\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: " + secret + "}\n---"
		if secret == "" {
			text = configMap(value)
		}
		return merge(said(t, "/f", text+rollPod)).Pods[pod.Key{Namespace: "default", Name: "web-node1"}].Annotations[AnnotationConfig]
	}
	rest := len(`{"k":""}`) + len(`null`)
	fits, large := strings.Repeat("a", maxHashed-rest), strings.Repeat("a", maxHashed-rest+1)
	whole := decode.Canonical([]any{
		[]any{"ConfigMap", "m", map[string]any{"k": fits}}, []any{"Secret", "s", nil},
	})
	if got, want := of(fits, ""), Digest(whole); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	all := map[string]bool{}
	for _, got := range []string{
		of(fits, ""), of(large, ""), of(large+"a", ""), of(large, "a"), of(large, "b"), of(fits, "a"), of(fits, "b"),
	} {
		all[got] = true
	}
	if len(all) != 7 {
		t.Errorf("two of 7 are the same: %v", all)
	}
	if again := of(large, "a"); !all[again] {
		t.Error("the same content has two hashes")
	}
}

// TestConfigHashesOfMany: the content of an object is encoded and hashed once, however many pods refer to it, and whatever
// else each refers to. It measures memory because times vary.
func TestConfigHashesOfMany(t *testing.T) {
	const objects, size = 4, 1 << 20
	allocated := func(pods int) uint64 {
		var all []Snapshot
		for n := range objects {
			name := fmt.Sprintf("large%d", n)
			all = append(all, said(t, "/"+name, strings.Replace(configMap(strings.Repeat("a", size)), "name: m", "name: "+name, 1)))
		}
		for n := range pods {
			env := fmt.Sprintf("    envFrom: [{configMapRef: {name: own%d}}", n)
			for m := range objects {
				env += fmt.Sprintf(", {configMapRef: {name: large%d}}", m)
			}
			head, _, _ := strings.Cut(rollPod, "    env:")
			text := strings.Replace(configMap("a"), "name: m", fmt.Sprintf("name: own%d", n), 1) +
				strings.Replace(head, "name: web", fmt.Sprintf("name: web%d", n), 1) + env + "]\n"
			all = append(all, said(t, fmt.Sprintf("/pod%d", n), text))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := merge(all...)
		runtime.ReadMemStats(&after)
		for key, p := range d.Pods {
			if p.Annotations[AnnotationConfig] == "" {
				t.Errorf("%s has no hash", key)
			}
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := allocated(1), allocated(100)
	if many > few+10*objects*size {
		t.Errorf("%d bytes, and %d for a hundred times as many pods", few, many)
	}
}
