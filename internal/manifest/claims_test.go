package manifest

import (
	"fmt"
	"strings"
	"testing"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// TestMergedClaims: a claim that several files have is one, unless it names a volume, and StatefulSets have claims of
// their own.
func TestMergedClaims(t *testing.T) {
	t.Parallel()
	const claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n" +
		"spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: %s}}}\n"
	const class = "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\nprovisioner: csi.example.com\n"
	of := func(texts ...string) Desired {
		t.Helper()
		files := map[string]string{}
		for i, text := range texts {
			files[fmt.Sprintf("%d.yaml", i)] = text
		}
		return merged(t, workload.Recorded{}, files)
	}
	d := of(fmt.Sprintf(claim, "1Gi")+class, fmt.Sprintf(claim, "2Gi"))
	key := pod.Key{Namespace: "default", Name: "data"}
	if c := d.Objects.Claims[key]; len(d.Problems) > 0 || c == nil || c.Spec.Resources.Requests.Storage().String() != "1Gi" || d.Objects.Classes["fast"] == nil {
		t.Errorf("%+v, %v", d.Objects, d.Problems)
	}
	named := strings.Replace(claim, "storageClassName: fast", "volumeName: v", 1)
	if d := of(fmt.Sprintf(named, "1Gi"), fmt.Sprintf(named, "1Gi")); len(d.Problems) != 1 {
		t.Errorf("two claims of one volume: %v", d.Problems)
	}
	for _, texts := range [][]string{{claim, named}, {named, claim}} { // what names a volume says more
		d := of(fmt.Sprintf(texts[0], "1Gi"), fmt.Sprintf(texts[1], "2Gi"))
		if c := d.Objects.Claims[key]; len(d.Problems) > 0 || c == nil || c.Spec.VolumeName != "v" {
			t.Errorf("%+v, %v", c, d.Problems)
		}
	}
	set := workloadText("StatefulSet", "db", "replicas: 2", "volumeClaimTemplates: [{metadata: {name: data}, spec: "+
		"{accessModes: [ReadWriteOnce], storageClassName: fast, volumeName: v, resources: {requests: {storage: 3Gi}}}}]")
	d = of(set, fmt.Sprintf(strings.Replace(claim, "name: data", "name: data-db-1", 1), "1Gi"))
	for name, want := range map[string]string{"data-db-0": "3Gi", "data-db-1": "1Gi"} {
		key.Name = name
		if c := d.Objects.Claims[key]; c == nil || c.Spec.Resources.Requests.Storage().String() != want || *c.Spec.StorageClassName != "fast" || c.Spec.VolumeName != "" {
			t.Errorf("%s: %+v, want %s", name, c, want)
		}
	}
}
