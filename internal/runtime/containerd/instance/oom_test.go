package instance

import "testing"

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
		"6,1,1,-;oom-kill:oom_memcg=/a,task_memcg=/podrun.slice/podrun-podu.slice/podrun-c1.scope/below,task=x": true,
		"6,1,1,-;oom-kill:oom_memcg=/a,task_memcg=/podrun.slice/podrun-podu.slice/podrun-c1.scope2,task=x":      false,
		"6,1,1,-;oom-kill:oom_memcg=/podrun.slice/podrun-podu.slice/podrun-c1.scope,task_memcg=/other,task=x":   false,
	} {
		if got := killedIn([]byte(record), "/podrun.slice/podrun-podu.slice/podrun-c1.scope"); got != want {
			t.Errorf("%q: %t", record, got)
		}
	}
}
