package manifest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	loaded, err := Load([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"hostNetwork":true,
		"volumes":[{"name":"e"},{"name":"h","hostPath":{"path":"/h"}}],
		"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1","memory":"1Mi"},"requests":{"cpu":"9.5m"}}}]}}`),
		options("/a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(loaded.Pods[0].Spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"volumes":[{"name":"e","emptyDir":{}},{"name":"h","hostPath":{"path":"/h","type":""}}],` +
		`"containers":[{"name":"c","image":"i","ports":[{"hostPort":80,"containerPort":80,"protocol":"TCP"}],` +
		`"resources":{"limits":{"cpu":"1","memory":"1Mi"},"requests":{"cpu":"10m","memory":"1Mi"}},` +
		`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}],` +
		`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","nodeName":"node1",` +
		`"hostNetwork":true,"securityContext":{},"schedulerName":"default-scheduler",` +
		`"tolerations":[{"operator":"Exists","effect":"NoExecute"}],"enableServiceLinks":true}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDefaultOfAFileKey(t *testing.T) {
	t.Parallel()
	loaded, err := Load([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"volumes":[{"name":"e","emptyDir":{}}],
		"containers":[{"name":"c","image":"i","env":[{"name":"A","valueFrom":{"fileKeyRef":{"volumeName":"e","path":"f","key":"k"}}}]}]}}`),
		options("/a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if optional := loaded.Pods[0].Spec.Containers[0].Env[0].ValueFrom.FileKeyRef.Optional; optional == nil || *optional {
		t.Errorf("optional: %v", optional)
	}
}

// FuzzLoad checks that Load never panics, and that a pod that it accepted is accepted again with
// the same result.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"valid-*", "invalid-*"} {
		for _, path := range glob(f, pattern, 1) {
			if filepath.Base(path) != "invalid-billion-laughs.yaml" {
				f.Add(read(f, path))
			}
		}
	}
	for _, text := range large {
		f.Add([]byte(text(3)))
	}
	for _, name := range []string{"hugepages-18446744073709551616", "hugepages-1e99", "x.kubernetes.io/y", "memory"} {
		f.Add([]byte(podHead + "  containers: [{name: a, image: 'b:1', resources: {limits: {" + name + ": 1e18}}}]\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		loaded, err := Load(data, options("/a.yaml"))
		again, err2 := Load(data, options("/a.yaml"))
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("first %v, then %v", err, err2)
		}
		if err != nil {
			return
		}
		for i, p := range loaded.Pods {
			if !SameRun(p, again.Pods[i]) || p.UID != again.Pods[i].UID {
				t.Fatalf("first %v, then %v", p, again.Pods[i])
			}
			text, err := json.Marshal(p)
			back := &v1.Pod{}
			if err != nil || json.Unmarshal(text, back) != nil || !SameRun(p, back) {
				t.Fatalf("%s does not come back: %v", text, err)
			}
		}
	})
}

// A pod from a file tolerates NoExecute taints without a time limit, even if its manifest sets one.
func TestPodOfAFileStays(t *testing.T) {
	t.Parallel()
	loaded, err := Load([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}],
		"tolerations":[{"operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]}}`), options("/a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := loaded.Pods[0].Spec.Tolerations; len(got) != 1 || got[0].TolerationSeconds != nil {
		t.Errorf("tolerations %v", got)
	}
}
