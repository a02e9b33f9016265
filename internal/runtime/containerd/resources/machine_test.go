package resources

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
)

// TestMissingProfiles: a profile that is missing, or has no effect, is an error.
func TestMissingProfiles(t *testing.T) {
	t.Parallel()
	m := &Machine{seccompDir: t.TempDir()}
	for text, want := range map[string]string{
		"": "is not there", "{}": "defaultAction is missing", `{"architectures": ["SCMP_ARCH_X86_64"]}`: "defaultAction is missing",
		"{": "unexpected end of JSON input", `{"defaultAction": "SCMP_ACT_ERRNO"}`: "",
	} {
		if text != "" {
			if err := os.WriteFile(filepath.Join(m.seccompDir, "p.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		profile, err := m.localhostSeccomp("p.json")
		if want == "" && (err != nil || profile == nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v, want %q", text, profile, err, want)
		}
		_ = os.Remove(filepath.Join(m.seccompDir, "p.json"))
	}
	for _, kind := range []v1.AppArmorProfileType{v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeLocalhost} {
		_, err := appArmor(&v1.AppArmorProfile{Type: kind, LocalhostProfile: new("p")}, false)
		if err == nil || !strings.Contains(err.Error(), "AppArmor is not in use on this machine") {
			t.Errorf("%s without AppArmor: %v", kind, err)
		}
	}
}

// TestPagesWithoutLimit: who asks for huge pages gets none where nothing could hold it to its number.
func TestPagesWithoutLimit(t *testing.T) {
	t.Parallel()
	m := &Machine{cgroups: &cgroup.Tree{}} // without the controller
	c := &v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}}}
	if sizes, err := m.pageSizes(&v1.Pod{}, c); err == nil || !strings.Contains(err.Error(), "so they cannot be limited") {
		t.Errorf("sizes %v, %v", sizes, err)
	}
	if sizes, err := m.pageSizes(&v1.Pod{}, &v1.Container{}); err != nil || len(sizes) > 0 {
		t.Errorf("who asks for none: %v, %v", sizes, err)
	}
}

// TestOOMPolicy: systemd is asked for the scopes of containers only, and once.
func TestOOMPolicy(t *testing.T) {
	t.Parallel()
	m := &Machine{}
	if m.OOMPolicy(oci.Cgroupfs) {
		t.Error("a cgroup that is no scope has a policy")
	}
	m.oomPolicy.Put("OOMPolicy", true)
	if got := m.OOMPolicy(oci.Systemd); got != cgroup.Unified() {
		t.Errorf("a scope has a policy: %t", got)
	}
}
