package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/podsecurity"
)

// TestKubectlGetRuns: the output of kubectl get pod -o yaml is a manifest. What only the cluster acts
// on is left out with a warning each; nothing that a worker reads remains of it.
func TestKubectlGetRuns(t *testing.T) {
	t.Parallel()
	loaded, err := load(t, filepath.Join(fixtures, "valid-kubectl-get.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p := loaded.Pods[0]
	c := p.Spec.Containers[0]
	if len(p.Spec.Volumes) != 1 || p.Spec.Volumes[0].Name != "cache" || len(c.VolumeMounts) != 1 || c.VolumeMounts[0].Name != "cache" {
		t.Errorf("volumes %v, mounts %v", p.Spec.Volumes, c.VolumeMounts)
	}
	if !p.CreationTimestamp.IsZero() || p.OwnerReferences != nil || p.Status.Phase != "" || p.ResourceVersion != "" || p.GenerateName != "" {
		t.Errorf("metadata %+v, status %+v", p.ObjectMeta, p.Status)
	}
	if p.UID != "5d1c6a52-6f1b-4a0f-8f0a-7f9a2c9b1e34" {
		t.Errorf("UID %s is not the manifest's", p.UID)
	}
	var fields []string
	for _, w := range loaded.Warnings {
		fields = append(fields, w.Field)
		if w.Line == 0 || w.Key.Name != "web-6d9c7f8b5d-x2x7k-node1" {
			t.Errorf("%+v", w)
		}
		if !strings.Contains(p.Annotations[AnnotationWarnings], w.Field+": ") {
			t.Errorf("%s is not in %q", w.Field, p.Annotations[AnnotationWarnings])
		}
	}
	want := []string{
		"metadata.creationTimestamp", "metadata.generateName", "metadata.generation", "metadata.ownerReferences", "metadata.resourceVersion",
		"spec.serviceAccount", "spec.serviceAccountName", "spec.volumes[1]", "status",
	}
	if !slices.Equal(fields, want) {
		t.Errorf("warnings about %q, want %q", fields, want)
	}
}

// TestStrictFields: with StrictFields every warning is an error at its line.
func TestStrictFields(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"valid-kubectl-get.yaml", "valid-scheduling.yaml"} {
		loaded, err := load(t, filepath.Join(fixtures, name))
		if err != nil || len(loaded.Warnings) < 5 {
			t.Fatalf("%s: %v, warnings %v", name, err, loaded.Warnings)
		}
		data, err := os.ReadFile(filepath.Join(fixtures, name))
		if err != nil {
			t.Fatal(err)
		}
		o := options(filepath.Join(fixtures, name))
		o.Rules.StrictFields = true
		_, err = Load(data, o)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Errors) != len(loaded.Warnings) {
			t.Fatalf("%s: %v, want %d errors", name, err, len(loaded.Warnings))
		}
		for i, e := range invalid.Errors {
			if w := loaded.Warnings[i]; e.Line != w.Line || e.Field != w.Field || !strings.HasPrefix(e.Message, "Forbidden: --strict-fields: ") {
				t.Errorf("error %v for warning %v", e, w)
			}
		}
	}
}

// TestIgnoreNodeName: another node's name is an error, unless it is ignored with a warning.
func TestIgnoreNodeName(t *testing.T) {
	t.Parallel()
	text := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nodeName: other\n  containers: [{name: c, image: i}]\n")
	if _, err := Load(text, options("/a.yaml")); err == nil || !strings.Contains(err.Error(), `this node is "node1"`) {
		t.Errorf("%v", err)
	}
	o := options("/a.yaml")
	o.Rules.IgnoreNodeName = true
	loaded, err := Load(text, o)
	if err != nil || len(loaded.Warnings) != 1 || loaded.Warnings[0].Line != 5 || loaded.Pods[0].Spec.NodeName != "node1" {
		t.Errorf("%v, %+v", err, loaded)
	}
	o.Rules.StrictFields = true
	if _, err := Load(text, o); err == nil {
		t.Error("--strict-fields accepts another node's name")
	}
}

// TestIgnoredFieldsRestartNothing: an edit of what is ignored changes the manifest's hash, and no
// container; one of the required node affinity replaces the pod, as one of its nodeSelector does.
func TestIgnoredFieldsRestartNothing(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(fixtures, "valid-scheduling.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	of := func(text string) *v1.Pod {
		loaded, err := Load([]byte(text), options("/a.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Pods[0]
	}
	before := of(string(data))
	for from, same := range map[string]bool{
		"maxSkew: 1": true, "weight: 1": true, "example.com/ready": true, "schedulerName: mine": true, "app: web": true,
		"key: cpus": false, "serviceAccountName: app": false,
	} {
		after := of(strings.Replace(string(data), from, from+"1", 1))
		if SameRun(before, after) != same || ManifestHash(before) == ManifestHash(after) || before.UID == after.UID {
			t.Errorf("%s: same run %v, want %v", from, !same, same)
		}
	}
}

// TestPolicyJudgesWhatRemains: no ignored field hides a privilege from --pod-security.
func TestPolicyJudgesWhatRemains(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(fixtures, "valid-kubectl-get.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := options("/a.yaml")
	o.Policy = baseline(t)
	if _, err := Load(data, o); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"  volumes:\n":      "  volumes:\n  - {name: h, hostPath: {path: /}}\n",
		"  nodeName: node1": "  hostPID: true\n  nodeName: node1",
		// A host path is a host path, whatever its name.
		"    projected:\n      defaultMode: 420\n": "    hostPath: {path: /}\n    projected:\n      defaultMode: 420\n",
	} {
		if _, err := Load([]byte(strings.Replace(string(data), from, to, 1)), o); err == nil {
			t.Errorf("%q is accepted", to)
		}
	}
}

func baseline(t *testing.T) *podsecurity.Policy {
	t.Helper()
	policy, err := podsecurity.New("baseline")
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// TestKindsPassedOver: an object that is not needed is a warning that says what that means, and an
// error with StrictKinds; it is neither an error nor a pod.
func TestKindsPassedOver(t *testing.T) {
	t.Parallel()
	name := filepath.Join(fixtures, "valid-passed-over.yaml")
	loaded, err := load(t, name)
	if err != nil || len(loaded.Pods) != 1 || len(loaded.Objects) != 0 {
		t.Fatalf("%v, pods %v, objects %v", err, loaded.Pods, loaded.Objects)
	}
	var got []string
	for _, w := range loaded.Warnings {
		got = append(got, strings.TrimPrefix(w.Error(), name))
	}
	want := []string{
		":2: kind: Namespace monitoring is passed over: a namespace exists when a pod is in it",
		":6: kind: ServiceAccount agent is passed over: there is no API server, so pods get no token and no rights there",
		":10: kind: ClusterRole agent is passed over: there is no API server, so pods get no token and no rights there",
		":19: items[0].kind: ClusterRoleBinding agent is passed over: there is no API server, so pods get no token and no rights there",
		":30: kind: Service agent is passed over: there is no virtual IP: pods find each other by their names, hostPort makes a port reachable",
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	o := options(name)
	o.Rules.StrictKinds = true
	_, err = Load(data, o)
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Errors) != len(want) || !strings.HasPrefix(invalid.Errors[0].Message, "Forbidden: --strict-kinds: Namespace monitoring is passed over") {
		t.Errorf("with StrictKinds: %v", err)
	}
}

// TestManyKindsPassedOver: what is passed over without a warning of its own is said too.
func TestManyKindsPassedOver(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n", 101)
	loaded, err := Load([]byte(text), options("/a.yaml"))
	if err != nil || len(loaded.Warnings) != 101 || loaded.Warnings[100].Message != "more is ignored or passed over than these 100 warnings say" {
		t.Errorf("%v, %d warnings, the last %v", err, len(loaded.Warnings), loaded.Warnings[len(loaded.Warnings)-1])
	}
}

// TestDeprecatedAnnotations: they are accepted, and each warning names the field to use instead.
func TestDeprecatedAnnotations(t *testing.T) {
	t.Parallel()
	loaded, err := load(t, filepath.Join(fixtures, "valid-deprecated-annotations.yaml"))
	if err != nil || len(loaded.Warnings) != 3 {
		t.Fatalf("%v, %+v", err, loaded.Warnings)
	}
	for _, w := range loaded.Warnings {
		field := "use securityContext.seccompProfile"
		if strings.Contains(w.Field, "apparmor") {
			field = "use securityContext.appArmorProfile"
		}
		if w.Line == 0 || !strings.Contains(w.Message, field) {
			t.Errorf("%+v", w)
		}
	}
}

// TestAutoUpdateWithoutEffect: an annotation that cannot do anything is warned about.
func TestAutoUpdateWithoutEffect(t *testing.T) {
	t.Parallel()
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const annotated = "annotations: {podrun.io/auto-update: registry}"
	inPod := func(containers string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: a, " + annotated + "}\nspec: {containers: [" + containers + "]}\n"
	}
	for text, want := range map[string]string{
		inPod("{name: c, image: i}"):                                                   "",
		inPod("{name: c, image: i" + digest + "}, {name: d, image: i}"):                "",
		inPod("{name: c, image: 'i" + digest + "'}"):                                   "a.yaml:3: metadata.annotations[podrun.io/auto-update]: has no effect: the reference of each image has a digest, or its pull policy is Never",
		inPod("{name: c, image: i, imagePullPolicy: Never}"):                           "has no effect",
		strings.Replace(inPod("{name: c, image: i"+digest+"}"), ", "+annotated, "", 1): "",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    metadata: {" + annotated + "}\n    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}\n": "a.yaml:6: spec.template.metadata.annotations[podrun.io/auto-update]: has no effect: a pod of a Job keeps its image until it ends",
	} {
		loaded, err := Load([]byte(text), options("a.yaml"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, w := range loaded.Warnings {
			got = append(got, w.Error())
		}
		if all := strings.Join(got, "\n"); !strings.Contains(all, want) || want == "" && all != "" {
			t.Errorf("%s: %q, want %q", text, all, want)
		}
	}
}
