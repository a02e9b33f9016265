package oci

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// TestManyGroups checks that a process does not start with so many groups that the kernel refuses
// them, or that runc would compare them with the image's for minutes.
func TestManyGroups(t *testing.T) {
	t.Parallel()
	groups := func(n int) *v1.PodSecurityContext {
		sc := &v1.PodSecurityContext{FSGroup: new(int64(1))}
		for i := range n {
			sc.SupplementalGroups = append(sc.SupplementalGroups, int64(i+1))
		}
		return sc
	}
	for _, c := range []struct {
		name    string
		of      *v1.PodSecurityContext
		entries int
		want    string
	}{
		{"as many as the kernel supports", groups(pod.MaxGroups - 1), 60, ""},
		{"one more, with the image's", groups(pod.MaxGroups), 60, "would be in 65537 groups"},
		{"few, and a long file", groups(9), 1_500_000, ""},
		{"many, and a long file", groups(1000), 1_500_000, "/etc/group of the image has 1500000 lines"},
	} {
		spec, err := Build(secured(c.of, nil, func(in *Input) {
			in.User.AdditionalGids, in.GroupEntries = []uint32{0}, c.entries
		}))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if want := len(c.of.SupplementalGroups) + 1; err == nil && len(spec.Process.User.AdditionalGids) != want {
			t.Errorf("%s: %d groups, want %d", c.name, len(spec.Process.User.AdditionalGids), want)
		}
	}
}
