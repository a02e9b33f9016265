package pod

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestUser(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spelled string
		want    *v1.LinuxContainerUser
	}{
		{UserOf(0, 0, nil), &v1.LinuxContainerUser{}},
		{UserOf(1000, 4294967295, []uint32{7, 1000}), &v1.LinuxContainerUser{UID: 1000, GID: 4294967295, SupplementalGroups: []int64{7, 1000}}},
		{UserOf(1, 1, make([]uint32, 65536)), nil},
		{"", nil}, {"0", nil}, {"0:0", nil}, {"0:0:a", nil}, {"0:0:1,,2", nil}, {"0:-1:", nil}, {"4294967296:0:", nil},
	} {
		got := ReadUser(c.spelled)
		if c.want == nil && got != nil || c.want != nil && (got == nil || !reflect.DeepEqual(got.Linux, c.want)) {
			t.Errorf("%.40q: %+v, want %+v", c.spelled, got, c.want)
		}
	}
}
