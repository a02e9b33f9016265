package vm

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSELinux: with Debian's policy, permissive and enforcing, a container and its volumes have the labels that its
// manifest sets, directories of the machine keep theirs, and the kernel keeps a container from what has another label.
func TestSELinux(t *testing.T) {
	m := bootServing(t)
	if r := m.run("test", "-e", "/usr/share/selinux/default/container.pp.bz2"); r.Code != 0 {
		m.skip("this policy has no types for containers")
	}
	m.powerOff()
	m.kernel = "security=selinux selinux=1"
	m.start() // Debian labels all files in the first boot with SELinux
	// podrun and its files have the labels of a container engine, as an administrator gives them.
	m.sh(`systemctl stop podrun; podrun down --all; chcon -R -t container_var_lib_t /var/lib/podrun
		mkdir -p /etc/pods; chcon -R -t container_config_t /etc/pods
		chcon -t container_engine_exec_t /usr/bin/podrun /var/lib/podrun/bin/*
		mkdir -p /trace /shared; echo secret > /trace/secret; echo two > /shared/two
		chcon -R -t container_file_t -l s0:c9,c10 /trace; chcon -R -t container_file_t /shared; chcon -l s0:c3,c4 /shared/two`)
	m.reboot() // its sockets have labels from their directory
	if got := m.sh("getenforce; cat /proc/$(systemctl show -P MainPID podrun)/attr/current | tr -d '\\0'"); got != "Permissive\nsystem_u:system_r:container_engine_t:s0" {
		t.Errorf("podrun runs as %s", got)
	}
	host := m.sh("stat -c %C /trace /trace/secret")
	level := map[string]string{"one": "s0:c1,c2", "two": "s0:c3,c4", "plain": "", "one-enforced": "s0:c1,c2", "plain-enforced": ""}
	starts := func(number int, name string) {
		t.Helper()
		more := []string{"- {name: d, emptyDir: {}}", "- {name: s, hostPath: {path: /shared}}"}
		if level[name] != "" {
			more = append(more, "securityContext: {seLinuxOptions: {user: system_u, role: system_r, type: container_t, level: \""+level[name]+"\"}}")
		}
		text := podOf(name, fmt.Sprintf("sleep %d & echo > /d/x; echo hello; %s", number, forever), more...)
		m.write("/etc/pods/"+name+".yaml", mounting(text, "{name: d, mountPath: /d}", "{name: s, mountPath: /s}"))
		m.await(name, isReady(name))
		got := m.sh(fmt.Sprintf(`cd /proc/$(pgrep -xf "sleep %d"); tr -d '\0' < attr/current; echo; stat -c %%C root/d root/d/x root/m root/etc/hosts root/bin`, number))
		t.Logf("%s: %s", name, got)
		if level[name] == "" {
			if !strings.HasPrefix(got, "system_u:system_r:spc_t:") {
				t.Errorf("%s has no label of its own, and runs as %s", name, got)
			}
			return
		}
		file := "system_u:object_r:container_file_t:" + level[name]
		want := append([]string{"system_u:system_r:container_t:" + level[name]}, file, file, file, file, file)
		if !strings.EqualFold(strings.Join(strings.Fields(got), " "), strings.Join(want, " ")) {
			t.Errorf("%s: its process, volumes and files are %q, want %q", name, strings.Fields(got), want)
		}
	}
	for i, name := range []string{"plain", "one", "two"} {
		starts(76540+i, name)
	}
	may := func(name, script string, want bool) {
		t.Helper()
		if r := m.run("podrun", "exec", name, "--", "sh", "-c", script); (r.Code == 0) != want {
			t.Errorf("%s: %s: %v, want %t", name, script, r, want)
		}
	}
	may("one", "cat /t/secret /s/two", true) // permissive
	denied := func() string {
		return m.sh(`journalctl -k -b --no-pager -o cat | grep 'avc:  denied' |
			sed 's/.*denied//; s/ pid=[0-9]*//; s/ ino=[0-9]*//' | sort | uniq -c | sort -rn | head -40`)
	}
	t.Logf("what the policy denies: %s", denied())
	docs, err := os.ReadFile("../docs/security.md")
	must(t, err)
	_, module, _ := strings.Cut(string(docs), "cat >podrun.cil <<'END'\n")
	module, _, is := strings.Cut(module, "END\n")
	if !is {
		t.Fatal("docs/security.md has no module")
	}
	m.write("/root/podrun.cil", module)
	r, err := m.try(10*time.Minute, "", "sh", "-euc", "sysctl -qw kernel.printk_ratelimit=0; semodule -i /root/podrun.cil")
	if must(t, err); r.Code != 0 {
		t.Fatalf("the module of the docs: %v", r)
	}
	m.sh("setenforce 1")
	for _, name := range []string{"one", "two"} {
		may(name, "echo > /d/y && cat /d/x /d/y /etc/hosts", true)
		may(name, "cat /t/secret", false)
		may(name, "cat /s/two", name == "two")
	}
	may("plain", "echo > /d/y && cat /d/x", true)
	starts(76550, "one-enforced")
	starts(76551, "plain-enforced")
	may("one-enforced", "cat /s/two", false)
	// podrun and its containerd start, load images and end pods under the policy as well, also at the machine's boot.
	m.sh("cp /vm/tool-0.tar /var/lib/podrun/images; systemctl stop podrun; podrun down --all; systemctl start podrun")
	m.sh("podrun images load /var/lib/podrun/images/tool-0.tar")
	m.await("the pods of a new containerd", isReady("one-enforced")+"; "+isReady("plain"))
	m.sh("sed -i 's/^SELINUX=.*/SELINUX=enforcing/' /etc/selinux/config")
	m.reboot()
	if got := m.sh("getenforce"); got != "Enforcing" {
		t.Errorf("after the boot: %s", got)
	}
	m.await("the pods after the boot", isReady("one-enforced")+"; "+isReady("plain"))
	may("one-enforced", "cat /s/two", false)
	may("one-enforced", "cat /d/x", true)
	m.await("what it wrote", `[ "$(podrun logs one-enforced)" = hello ]`)
	if got := m.sh("stat -c %C /trace /trace/secret"); got != host {
		t.Errorf("the machine's directory was labelled %s, and is %s", host, got)
	}
	m.sh("rm /etc/pods/*.yaml")
	m.await("the pods to be gone", `[ -z "$(podrun get pods -o name)" ]`)
	m.sh("systemctl stop podrun; podrun down --all; setenforce 0") // where the policy is enforced, nobody here may read the journal
	if got := m.sh("journalctl -b -u podrun --no-pager -o cat"); !strings.Contains(got, "serving") {
		t.Errorf("the journal: %s", got)
	}
	if got := m.sh(`journalctl -b -u podrun --no-pager -o cat | grep -e WARN -e ERROR || true`); got != "" {
		t.Errorf("under the policy podrun lacks something: %s", got)
	}
	t.Logf("what the policy has denied: %s", denied())
}
