package instance

import (
	"strings"
	"testing"
)

func TestKilledIn(t *testing.T) {
	t.Parallel()
	const line = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=podrun-c1.scope,mems_allowed=0," +
		"oom_memcg=/podrun.slice/podrun-podu.slice,task_memcg=/podrun.slice/podrun-podu.slice/podrun-c1.scope,task=sh,pid=41,uid=0\n"
	for record, want := range map[string]bool{
		"6,900,1000,-;" + line:               true,
		"6,900,1000,-,caller=T1;" + line:     true,
		"14,900,1000,-;" + line:              false, // written by a process
		"6,900,1000,-;it says " + line:       false,
		line:                                 false,
		"":                                   false,
		"6,900,1000,-;Out of memory: Killed": false,
	} {
		if got := killedIn([]byte(record), "/podrun.slice/podrun-podu.slice/podrun-c1.scope"); got != want {
			t.Errorf("%q: %t", record, got)
		}
	}
}

// TestForgedKill: whoever may make cgroups has them named so that a record of the kernel seems to have other fields.
func TestForgedKill(t *testing.T) {
	t.Parallel()
	const pod, container = "/podrun.slice/podrun-podu.slice", "/podrun.slice/podrun-podu.slice/podrun-c1.scope"
	const user, neighbour = "/user.slice/user@1000.service", "/podrun.slice/podrun-podv.slice/podrun-c2.scope"
	const field = "/x,task_memcg="
	for _, x := range []struct {
		limited, victim string // limited is empty if the memory of the machine ran out
		want            bool
	}{
		{pod, container, true},
		{pod, container + "/below", true},
		{"/podrun.slice", container, true},
		{container, container, true},
		{container, container + "/below", true},
		{container + "/below", container + "/below/it", true},
		{"", container, true},
		{"", container + "/below", true},
		{"", container + field + neighbour, true},
		{pod, container + "2", false},
		{"", container + "2", false},
		{pod, pod + "/other", false},
		{"", "/other", false},
		{user + field + container, user + field + container, false},
		{user, user + field + container, false},
		{user + field + container, user + field + container + "/below", false},
		{user + "/x,oom_memcg=" + container, user + "/x,oom_memcg=" + container + "/y", false},
		{user + "/x,oom_memcg=" + pod + ",task_memcg=" + container, user + "/x,oom_memcg=" + pod + ",task_memcg=" + container, false},
		{"/podrun.slice", neighbour + field + container, false},
		{"", user + field + container, false},
		{"", user + "/x,oom_memcg=" + pod + ",task_memcg=" + container, false},
	} {
		limited := ",global_oom"
		if x.limited != "" {
			limited = ",oom_memcg=" + x.limited
		}
		for _, names := range []string{"cpuset=/ task=sh", "cpuset=,task_memcg= task=,task_memcg=/p", "cpuset=x,oom_memcg= task=,task=a,pid=1"} {
			cpuset, task, _ := strings.Cut(names, " ")
			record := "6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)," + cpuset + ",mems_allowed=0" + limited +
				",task_memcg=" + x.victim + "," + task + ",pid=41,uid=1000\n"
			if got := killedIn([]byte(record), container); got != x.want {
				t.Errorf("%q: %t", record, got)
			}
		}
	}
}
