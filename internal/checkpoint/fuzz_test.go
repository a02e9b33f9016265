package checkpoint

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

const fuzzUID = pod.UID("0123456789abcdef0123456789abcdef")

// FuzzDecode decodes arbitrary contents of a checkpoint file. A content that is accepted belongs to
// the requested revision and stays the same when it is written and read again: an update must not
// lose what it does not change.
func FuzzDecode(f *testing.F) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: fuzzUID}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "image:1"}}
	c := &Checkpoint{
		Version: Version, Sequence: 3, Owner: "serve", Pod: p, Evicted: "disk", Interrupted: true,
		Sandboxes:  []pod.Sandbox{{ID: "s1", UID: fuzzUID}},
		Instances:  []pod.Container{{ID: "i1", UID: fuzzUID, Name: "main", Attempt: 2, State: pod.Exited, Exit: pod.Exit{ExitCode: 137}}},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
	}
	manifest, err := json.Marshal(p)
	if err != nil {
		f.Fatal(err)
	}
	whole, err := encode(c, manifest)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(`{"version":2,"new":[{}]}`))
	f.Add([]byte(`{"version":1,"pod":{"metadata":{"name":"a","uid":"` + string(fuzzUID) + `"}},"instances":[{},{}],"sandboxes":null}`))
	f.Add([]byte(`{"version":1,"pod":{"metadata":{"name":"a","uid":"other"}}}`))
	f.Add([]byte(`{"version":1,"pod":null,"Pod":{"metadata":{"name":"a","uid":"` + string(fuzzUID) + `"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, manifest, err := decode(fuzzUID, data)
		if err != nil {
			if c != nil {
				t.Fatalf("a checkpoint beside the error %v", err)
			}
			return
		}
		if c.UID() != fuzzUID || c.Pod.Name == "" || c.Version != Version {
			t.Fatalf("not the revision's: %+v", c)
		}
		for _, one := range c.Newest() {
			if one.UID != fuzzUID || one.State == pod.Created {
				t.Errorf("newest: %+v", one)
			}
		}
		again, err := encode(c, manifest)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, manifest2, err := decode(fuzzUID, again)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, again)
		}
		if string(mustJSON(t, back)) != string(mustJSON(t, c)) || string(mustJSON(t, manifest2)) != string(mustJSON(t, manifest)) {
			t.Errorf("changed by writing and reading: %s", cmp.Diff(c, back))
		}
	})
}

func mustJSON(t *testing.T, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
