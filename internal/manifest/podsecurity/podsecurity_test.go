package podsecurity_test

import (
	"strings"
	"testing"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/podsecurity"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	const restricted = `
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - {name: main, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
`
	for _, c := range []struct{ name, level, spec, want string }{
		{"anything", "privileged", "\n  hostPID: true\n  containers: [{name: main, image: i, securityContext: {privileged: true}}]\n", ""},
		{"nothing special", "baseline", "\n  containers: [{name: main, image: i}]\n", ""},
		{"privileged", "baseline", "\n  containers: [{name: main, image: i, securityContext: {privileged: true}}]\n",
			`m.yaml:4: spec: Forbidden: --pod-security baseline does not allow it: privileged (container "main" must not set securityContext.privileged=true)`},
		{"a path of the host's", "baseline", "\n  volumes: [{name: v, hostPath: {path: /}}]\n  containers: [{name: main, image: i}]\n", "hostPath volumes"},
		{"the host's processes", "baseline", "\n  hostPID: true\n  containers: [{name: main, image: i}]\n", "host namespaces"},
		{"an init container", "baseline", "\n  initContainers: [{name: init, image: i, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]\n  containers: [{name: main, image: i}]\n", "non-default capabilities"},
		{"nothing special", "restricted", "\n  containers: [{name: main, image: i}]\n", "allowPrivilegeEscalation != false"},
		{"as it should be", "restricted", restricted, ""},
		{"a CSI driver that is allowed", "restricted", restricted + "  volumes: [{name: v, csi: {driver: allowed.example.com}}]\n", ""},
		{"another CSI driver", "baseline", restricted + "  volumes: [{name: v, csi: {driver: other.example.com}}]\n",
			`m.yaml:8: spec.volumes[0].csi.driver: Forbidden: --pod-security baseline does not allow it: --inline-csi-drivers does not have "other.example.com"`},
	} {
		policy, err := podsecurity.New(c.level, "allowed.example.com")
		if err != nil {
			t.Fatal(err)
		}
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:" + c.spec
		loaded, err := manifest.Load([]byte(text), manifest.LoadOptions{Origin: manifest.Origin{Source: manifest.SourceFile, Path: "m.yaml"}, NodeName: "n", Policy: policy})
		switch {
		case c.want == "" && (err != nil || len(loaded.Pods) != 1):
			t.Errorf("%s, %s: %v", c.level, c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s, %s: %v, want %s", c.level, c.name, err, c.want)
		}
	}
	if _, err := podsecurity.New("strict"); err == nil || err.Error() != `"strict": must be privileged, baseline or restricted` {
		t.Errorf("a level that is none: %v", err)
	}
}
