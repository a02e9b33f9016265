package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestNFS: a server of NFS that hangs holds up the pods that use it, and nothing else; when it is back, they go on.
func TestNFS(t *testing.T) {
	m := bootServing(t)
	m.sh(`mkdir -p /srv/x; chmod 777 /srv/x; echo '/srv/x 127.0.0.1(rw,no_root_squash,no_subtree_check,insecure)' > /etc/exports
		printf '[nfsd]\ngrace-time=10\nlease-time=10\n' > /etc/nfs.conf.d/test.conf
		systemctl unmask nfs-server; systemctl start nfs-server`)
	text := podOf("client", `echo kept >/n/kept; i=0; while :; do i=$((i+1)); echo $i >/n/i; sleep 1; done`,
		"- {name: share, nfs: {server: 127.0.0.1, path: /srv/x}}", "terminationGracePeriodSeconds: 2")
	m.write("/etc/pods/client.yaml", mounting(text, "{name: share, mountPath: /n}"))
	m.await("the pod", isReady("client"))
	writes := func() {
		t.Helper()
		m.await("it to write", `a=$(cat /srv/x/i); sleep 2; b=$(cat /srv/x/i); [ -n "$b" ] && [ "$a" != "$b" ]`)
	}
	writes()
	// others: what does not use the server starts, ends and is shown meanwhile.
	others := func(name string) {
		t.Helper()
		began := time.Now()
		m.write("/etc/pods/"+name+".yaml", podOf(name, forever))
		m.await("a neighbour", isReady(name))
		m.sh("timeout 20 podrun get pods; timeout 20 podrun describe pod client; timeout 20 podrun top; rm /etc/pods/" + name + ".yaml")
		m.await("a neighbour to be gone", fmt.Sprintf("! podrun get pods %s", name))
		t.Logf("a neighbour came and went in %.0f s", time.Since(began).Seconds())
	}
	others("before")
	m.sh("systemctl stop nfs-server")
	others("meanwhile")
	m.sh("systemctl start nfs-server")
	writes()
	// A server that is there and says nothing; a pod that begins meanwhile waits for it.
	m.sh("nft 'add table inet silent; add chain inet silent in {type filter hook input priority 0;}; add rule inet silent in tcp dport 2049 drop'")
	m.write("/etc/pods/late.yaml", mounting(strings.Replace(text, "name: client", "name: late", 1), "{name: share, mountPath: /n}"))
	others("silent")
	m.await("the reason to be said", "podrun describe pod late | grep FailedMount")
	if r := m.run("sh", "-euc", isReady("late")); r.Code == 0 {
		t.Error("a pod is ready without its volume")
	}
	m.sh("nft delete table inet silent")
	writes()
	m.await("the pod that waited", isReady("late"))
	m.sh("rm /etc/pods/late.yaml")
	m.await("it to be gone", "! podrun get pods late")
	if got := m.sh(`podrun get pods client -o jsonpath='{.status.containerStatuses[0].restartCount}'`); got != "0" {
		t.Errorf("the pod was restarted %s times", got)
	}
	m.sh("systemctl stop nfs-server; rm /etc/pods/client.yaml")
	time.Sleep(10 * time.Second)
	others("without")
	t.Logf("of the removed pod, while its server hangs: %s", m.sh("podrun get pods; grep nfs /proc/mounts || true"))
	m.sh("systemctl restart podrun")
	others("restarted")
	m.sh("systemctl start nfs-server")
	m.await("the pod to be gone", "! podrun get pods client && ! grep 'podrun.* nfs' /proc/mounts")
	m.sh("grep kept /srv/x/kept") // what was on the server is still there
	m.sh("systemctl stop podrun; podrun down --all; systemctl stop nfs-server")
}
