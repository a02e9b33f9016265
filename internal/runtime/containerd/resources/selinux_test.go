package resources

import (
	"strings"
	"testing"

	"github.com/opencontainers/selinux/go-selinux"
	v1 "k8s.io/api/core/v1"
)

func TestSELinux(t *testing.T) {
	t.Parallel()
	own := labelOptions("uid-a", &v1.SELinuxOptions{Type: "spc_t"})
	if len(own) != 2 || !strings.HasPrefix(own[0], "level:s0:c") || own[1] != "type:spc_t" {
		t.Errorf("options %q", own)
	}
	if again := labelOptions("uid-a", &v1.SELinuxOptions{User: "system_u"}); again[0] != own[0] {
		t.Errorf("containers of one pod have %s and %s", own[0], again[0])
	}
	if other := labelOptions("uid-b", &v1.SELinuxOptions{}); other[0] == own[0] {
		t.Errorf("two pods have %s", own[0])
	}
	all := labelOptions("uid-a", &v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0:c1,c2"})
	if got := strings.Join(all, " "); got != "level:s0:c1,c2 user:u role:r type:t" {
		t.Errorf("options %q", got)
	}
	if process, files, err := seLinux("uid-a", nil); process != "" || files != "" || err != nil {
		t.Errorf("who asks for nothing gets %q, %q, %v", process, files, err)
	}
	process, _, err := seLinux("uid-a", &v1.SELinuxOptions{Level: "s0:c1,c2"})
	if selinux.GetEnabled() {
		if err != nil || !strings.HasSuffix(process, ":s0:c1,c2") {
			t.Errorf("label %q, %v", process, err)
		}
	} else if err == nil || !strings.Contains(err.Error(), "SELinux is not in use on this machine") {
		t.Errorf("where there is none: %q, %v", process, err)
	} else if process, files, err := seLinux("uid-a", &v1.SELinuxOptions{Type: "spc_t", Level: "s0"}); process != "" || files != "" || err != nil {
		t.Errorf("where there is none, and none is wanted: %q, %q, %v", process, files, err)
	}
}
