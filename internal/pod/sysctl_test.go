package pod

import "testing"

func TestSysctl(t *testing.T) {
	t.Parallel()
	allowed := []string{"kernel.msg*", "net.core.somaxconn", "net/ipv6/*"}
	for _, c := range []struct {
		name string
		safe bool
		ns   string
		file string
	}{
		{"net.ipv4.tcp_syncookies", true, "Net", "net/ipv4/tcp_syncookies"},
		{"net/ipv4/tcp_syncookies", true, "Net", "net/ipv4/tcp_syncookies"},
		{"kernel.shm_rmid_forced", true, "IPC", "kernel/shm_rmid_forced"},
		{"kernel.msgmax", true, "IPC", "kernel/msgmax"},
		{"kernel.sem", false, "IPC", "kernel/sem"},
		{"net.core.somaxconn", true, "Net", "net/core/somaxconn"},
		{"net.core.somaxconn2", false, "Net", "net/core/somaxconn2"},
		{"net.ipv6.conf.all.forwarding", true, "Net", "net/ipv6/conf/all/forwarding"},
		{"net/ipv4/conf/eth0.1/rp_filter", false, "Net", "net/ipv4/conf/eth0.1/rp_filter"},
		{"net.ipv4.conf.eth0/1.rp_filter", false, "Net", "net/ipv4/conf/eth0.1/rp_filter"},
		{"fs.mqueue.msg_max", false, "IPC", "fs/mqueue/msg_max"},
		{"vm.swappiness", false, "", "vm/swappiness"},
		{"kernel.panic", false, "", "kernel/panic"},
	} {
		if safe, ns, file := SafeSysctl(c.name, allowed), SysctlNamespace(c.name), SysctlFile(c.name); safe != c.safe || ns != c.ns || file != c.file {
			t.Errorf("%s: %v, %q, %q", c.name, safe, ns, file)
		}
	}
	for pattern, want := range map[string]string{"kernel.msg*": "IPC", "net.*": "Net", "fs.mqueue.*": "IPC", "*": "", "vm.*": "", "kernel.*": ""} {
		if got := SysctlNamespace(pattern); got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}
