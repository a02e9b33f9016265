package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
)

// freePort is a port of the machine's that nobody has now, and that the kernel gives nobody unasked.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10000 + rand.IntN(20000))
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			must(t, l.Close())
			silent(t, l.Addr().String())
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// silent waits until nobody listens at an address where the test did: a program that another case starts at the
// same moment has the socket, too, until it has become what it is to be.
func silent(t *testing.T, address string) {
	t.Helper()
	await(t, patience, "nobody listens at "+address, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return errors.New("somebody does")
		}
		return nil
	})
}

// web is a pod that serves its own name at a port of the machine's.
func web(name, port string) string {
	return inContainer(manifest(name, "Always", "mkdir /www; hostname >/www/index.html; exec httpd -f -p 80 -h /www"),
		"ports: [{containerPort: 80, hostPort: "+port+"}]")
}

// waiting checks that a pod's container waits for the reason.
func waiting(reason string, texts ...string) func(*v1.Pod) error {
	return func(p *v1.Pod) error {
		s := p.Status.ContainerStatuses
		if len(s) == 0 || s[0].State.Waiting == nil || s[0].State.Waiting.Reason != reason {
			return errors.New(asJSON(p.Status))
		}
		for _, text := range texts {
			if !strings.Contains(s[0].State.Waiting.Message, text) {
				return fmt.Errorf("no %q in %q", text, s[0].State.Waiting.Message)
			}
		}
		return nil
	}
}

func TestHostPort(t *testing.T) {
	n := newNode(t)
	port := freePort(t)
	n.write("web.yaml", web("web", port)+"---\n"+manifest("other", "Always", forever))
	n.serve()
	n.ready("web-n")
	n.ready("other-n")
	answers := func(want string) {
		t.Helper()
		n.await("the answer of "+want, func() error {
			body, err := get("http://127.0.0.1:" + port + "/")
			if err == nil && body != want+"\n" {
				err = fmt.Errorf("body %q", body)
			}
			return err
		})
	}
	answers("web-n")
	// From another pod and from the pod itself, by the machine's address.
	address := n.pod("web-n").Status.HostIP
	for _, from := range []string{"other", "web"} {
		if got := n.ok("exec", from, "--", "wget", "-qO-", "http://"+address+":"+port+"/"); got != "web-n\n" {
			t.Errorf("from %s: %q", from, got)
		}
	}
	// A second pod for the port waits, says why, and gets it when the first one goes; serve may die meanwhile.
	n.write("second.yaml", web("second", port))
	n.awaitPod("second-n", "to wait for the port", waiting("HostPortConflict", "host port "+port+"/TCP is taken by pod default/web-n"))
	n.end(syscall.SIGKILL)
	answers("web-n")
	n.serve()
	n.write("web.yaml", strings.Replace(web("web", port), "httpd -f", "httpd -vv -f", 1)) // another revision
	n.awaitPod("web-n", "to be edited", func(p *v1.Pod) error {
		if !strings.Contains(p.Spec.Containers[0].Command[2], "-vv") {
			return errors.New("not yet")
		}
		return isReady(p)
	})
	answers("web-n")
	n.remove("web.yaml")
	n.ready("second-n")
	answers("second-n")
}

func TestHostPortOfAProcess(t *testing.T) {
	n := newNode(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer busy.Close()
	_, port, err := net.SplitHostPort(busy.Addr().String())
	must(t, err)
	n.write("web.yaml", web("web", port))
	n.serve()
	n.awaitPod("web-n", "to wait for the port", waiting("HostPortConflict", port+"/TCP is in use by a process of this machine"))
	must(t, busy.Close())
	n.ready("web-n")
}

func TestNamesAndResolvers(t *testing.T) {
	n := newNode(t)
	n.write("db.yaml", manifest("db", "Always", forever, "hostname: db-0", "subdomain: db", "setHostnameAsFQDN: true",
		"hostAliases: [{ip: 192.0.2.10, hostnames: [ntp.example, time.example]}]",
		"dnsPolicy: None", "dnsConfig: {nameservers: [192.0.2.53], searches: [example.org], options: [{name: ndots, value: \"2\"}]}"))
	n.write("app.yaml", manifest("app", "Always", forever)+"---\n"+
		strings.Replace(manifest("far", "Always", forever), "name: far", "name: far\n  namespace: other", 1)+"---\n"+
		manifest("host", "Always", forever, "hostNetwork: true", "dnsPolicy: ClusterFirstWithHostNet"))
	n.serve("--cluster-dns=10.96.0.10", "--cluster-domain=cluster.test")
	db := n.ready("db-n").Status.PodIP
	app := n.ready("app-n").Status.PodIP
	far := n.ready("far-n").Status.PodIP
	host := n.ready("host-n").Status.PodIP
	sh := func(pod, line string) string { return n.ok("exec", pod, "--", "sh", "-c", line) }
	if got := sh("db", "hostname; hostname -f; cat /etc/hostname"); got != "db-0.db.default.svc.cluster.test\ndb-0.db.default.svc.cluster.test\ndb-0.db.default.svc.cluster.test\n" {
		t.Errorf("hostname %q", got)
	}
	if got, want := sh("db", "cat /etc/resolv.conf"), "nameserver 192.0.2.53\nsearch example.org\noptions ndots:2\n"; got != want {
		t.Errorf("dnsPolicy None: %q", got)
	}
	for pod, namespace := range map[string]string{"app": "default", "host": "default"} {
		if got := sh(pod, "cat /etc/resolv.conf"); !strings.HasPrefix(got, "nameserver 10.96.0.10\nsearch "+namespace+".svc.cluster.test svc.cluster.test cluster.test") {
			t.Errorf("%s's resolver: %q", pod, got)
		}
	}
	// ping needs no answer to say which address a name has.
	finds := func(pod, name, want string) {
		t.Helper()
		n.await(pod+" to find "+name, func() error {
			args := []string{"exec", pod, "--", "sh", "-c", "ping -c1 -W1 " + name + " | head -1"}
			if pod == "far" {
				args = append([]string{"exec", "-n", "other"}, args[1:]...)
			}
			if got := n.run(args...).stdout; !strings.Contains(got, "("+want+")") {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	for _, name := range []string{"db", "db-n", "db-0", "db-0.db", "db.default", "db-0.db.default.svc.cluster.test"} {
		finds("app", name, db)
	}
	finds("host", "app", app)
	finds("app", "host", host)
	finds("app", "far.other", far)
	finds("far", "db-0.db.default", db)
	finds("db", "time.example", "192.0.2.10")
	if got := n.run("exec", "app", "--", "ping", "-c1", "-W1", "far"); got.code == 0 {
		t.Errorf("found in another namespace: %v", got)
	}
	// Names stay while serve is away, and follow a pod that comes with another address.
	n.end(syscall.SIGKILL)
	finds("app", "db", db)
	n.serve("--cluster-dns=10.96.0.10", "--cluster-domain=cluster.test")
	n.write("db.yaml", manifest("db", "Always", forever, "hostname: other"))
	n.awaitPod("db-n", "to be edited", func(p *v1.Pod) error {
		if p.Spec.Hostname != "other" || p.Status.PodIP == db {
			return errors.New("not yet")
		}
		return isReady(p)
	})
	finds("app", "other", n.pod("db-n").Status.PodIP)
	finds("app", "db", n.pod("db-n").Status.PodIP)
	if got := n.run("exec", "app", "--", "grep", "-c", "db-0", "/etc/hosts"); strings.TrimSpace(got.stdout) != "0" {
		t.Errorf("a name that is not there any more: %v", got)
	}
}

// undisturbed is a list of the kernel's that no other test has changed meanwhile.
func undisturbed[T any](t *testing.T, list func() ([]T, error)) []T {
	t.Helper()
	for {
		all, err := list()
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		must(t, err)
		return all
	}
}

// TestBandwidth: annotations bound a pod's network on both of its ends.
func TestBandwidth(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", strings.Replace(manifest("a", "Always", forever), "metadata:\n",
		"metadata:\n  annotations: {kubernetes.io/ingress-bandwidth: 8M, kubernetes.io/egress-bandwidth: 16M}\n", 1))
	n.serve()
	n.ready("a-n")
	bridge, err := netlink.LinkByName(n.links()[0])
	must(t, err)
	var rates []uint64
	for _, link := range undisturbed(t, netlink.LinkList) {
		if link.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		for _, q := range undisturbed(t, func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) }) {
			if tbf, ok := q.(*netlink.Tbf); ok {
				rates = append(rates, tbf.Rate)
			}
		}
	}
	if !slices.Equal(rates, []uint64{1_000_000}) {
		t.Errorf("what comes is held to %v bytes a second", rates)
	}
	// 3 MiB at 2 MB/s, less what goes at once.
	sink, err := net.Listen("tcp", net.JoinHostPort("0.0.0.0", "0"))
	must(t, err)
	defer sink.Close()
	took := make(chan time.Duration, 1)
	go func() {
		c, err := sink.Accept()
		if err != nil {
			took <- 0
			return
		}
		defer c.Close()
		began := time.Now()
		_, _ = io.Copy(io.Discard, c)
		took <- time.Since(began)
	}()
	_, port, err := net.SplitHostPort(sink.Addr().String())
	must(t, err)
	n.ok("exec", "a", "--", "sh", "-c", `dd if=/dev/zero bs=1M count=3 2>/dev/null | nc $(ip route | sed -n "s/default via \([^ ]*\).*/\1/p") `+port)
	if got := <-took; got < time.Second {
		t.Errorf("3 MiB went in %s", got)
	}
}

// TestCycles: pods that come and go leave rules, addresses, links, mounts, cgroups and serve's files as they
// were. PODRUN_E2E_CYCLES says how many pods; 1000 take some minutes.
func TestCycles(t *testing.T) {
	const batch = 10
	cycles := 3 * batch
	if text := os.Getenv("PODRUN_E2E_CYCLES"); text != "" {
		var err error
		cycles, err = strconv.Atoi(text)
		must(t, err)
	}
	n := newNode(t)
	port := freePort(t)
	n.write("stays.yaml", manifest("stays", "Always", forever))
	n.serve()
	n.ready("stays-n")
	bridge := n.links()[0]
	files := func() int {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.serving.Process.Pid))
		must(t, err)
		return len(open)
	}
	one := func() {
		all := web("p0", port)
		for i := 1; i < batch; i++ {
			all += "---\n" + manifest(fmt.Sprintf("p%d", i), "Always", forever)
		}
		n.write("all.yaml", all)
		for i := range batch {
			n.ready(fmt.Sprintf("p%d-n", i))
		}
		n.remove("all.yaml")
		for i := range batch {
			n.gone(fmt.Sprintf("p%d-n", i))
		}
	}
	one()
	before := files()
	for done := batch; done < cycles; done += batch {
		one()
	}
	n.await("all to be as it was", func() error {
		var left []error
		for dir, want := range map[string]int{
			n.path("run", "network", "ips"): 1, "/sys/class/net/" + bridge + "/brif": 1, n.path("root", "pods"): 1,
			n.path("run", "sandboxes"): 1, n.path("run", "network", "ports"): 0, n.path("run", "status"): 1,
			n.path("log"): 0,
		} {
			if entries, err := os.ReadDir(dir); len(entries) != want || err != nil && want > 0 {
				left = append(left, fmt.Errorf("%d entries in %s, want %d: %v", len(entries), dir, want, entries))
			}
		}
		if tables, err := tablesOf([]string{bridge}); err != nil || slices.Contains(tables, bridge+"-ports") || len(tables) == 0 {
			left = append(left, fmt.Errorf("tables %v: %w", tables, err))
		}
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.path("run", "sandboxes")))
		if err != nil || len(mounts) != 4 { // the directory itself and three namespaces
			left = append(left, fmt.Errorf("%d mounts: %w", len(mounts), err))
		}
		if groups := n.cgroups(); len(groups) == 0 || slices.ContainsFunc(groups, func(g string) bool { return !strings.Contains(g, string(n.pod("stays-n").UID)) }) {
			left = append(left, fmt.Errorf("cgroups %v", groups))
		}
		if now := files(); now > before+5 {
			left = append(left, fmt.Errorf("serve has %d files open, and had %d", now, before))
		}
		return errors.Join(left...)
	})
}

// TestCNI: a user's configuration connects pods, and releases them however podrun ends.
func TestCNI(t *testing.T) {
	const plugins = "/usr/lib/cni"
	if _, err := os.Stat(plugins + "/bridge"); err != nil {
		t.Skipf("needs CNI's plugins (containernetworking-plugins): %v", err)
	}
	n := newNode(t)
	bridge := filepath.Base(n.dir) // at most 12 of the 15 bytes that an interface's name has
	must(t, os.Mkdir(n.path("net.d"), 0o755))
	must(t, os.WriteFile(n.path("net.d", "10-mine.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":%q,"plugins":[{"type":"bridge","bridge":%q,
		"isGateway":true,"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.97.211.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`,
		bridge, bridge, n.path("ipam")), 0o644))
	must(t, os.WriteFile(n.path("net.d", "20-more.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"more","plugins":[{"type":"bridge","bridge":"%sm",
		"capabilities":{"ips":true},"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.97.212.0/24"}]]}}]}`, bridge, n.path("ipam")), 0o644))
	t.Cleanup(func() {
		for _, name := range []string{bridge, bridge + "m"} { // the plugin leaves them
			if link, err := netlink.LinkByName(name); err == nil {
				must(t, netlink.LinkDel(link))
			}
		}
	})
	flag := "--cni-conf-dir=" + n.path("net.d")
	n.write("a.yaml", manifest("a", "Always", forever)+"---\n"+manifest("b", "Always", forever))
	n.serve(flag)
	a, b := n.ready("a-n").Status.PodIP, n.ready("b-n").Status.PodIP
	if !strings.HasPrefix(a, "10.97.211.") || !strings.HasPrefix(b, "10.97.211.") || a == b {
		t.Fatalf("addresses %s and %s", a, b)
	}
	n.await("an answer of the other pod", func() error {
		if got := n.run("exec", "a", "--", "ping", "-c1", "-W5", "b"); !strings.Contains(got.stdout, "1 packets received") {
			return errors.New(got.String())
		}
		return nil
	})
	several := func(name, networks string) string {
		return strings.Replace(manifest(name, "Always", forever), "metadata:\n", "metadata:\n  annotations: {k8s.v1.cni.cncf.io/networks: '"+networks+"'}\n", 1)
	}
	n.write("c.yaml", several("c", "more, x/more@data")+"---\n"+several("d", `[{"name": "more", "ips": ["10.97.212.77/24"]}]`))
	if got := n.ready("c-n").Status.PodIPs; len(got) != 1 || !strings.HasPrefix(got[0].IP, "10.97.211.") {
		t.Errorf("addresses %v", got)
	}
	n.ready("d-n")
	links := "ip -o -4 addr | grep -o '[a-z]*[0-9]* *inet 10.97.21[12]' | tr -s ' '"
	n.says("c", links, "eth0 inet 10.97.211\nnet1 inet 10.97.212\ndata inet 10.97.212")
	n.says("d", "ip -o -4 addr show net1 | grep -o 10.97.212.77/24; ping -c1 -W5 10.97.212.1 >/dev/null || true", "10.97.212.77/24")
	n.write("e.yaml", several("e", "nosuch"))
	n.await("a network that is not there to be told of", func() error {
		if got := n.run("describe", "pod", "e"); !strings.Contains(got.stdout, "CNI's network nosuch is in none of the configurations in "+n.path("net.d")) {
			return errors.New(got.String())
		}
		return nil
	})
	n.remove("c.yaml")
	n.remove("e.yaml")
	n.gone("c-n")
	n.gone("d-n")
	if files, err := filepath.Glob(n.path("ipam", "more", "10.*")); err != nil || len(files) > 0 {
		t.Errorf("leases of the other network: %v, %v", files, err)
	}
	n.end(syscall.SIGKILL)
	n.ok("down", "a") // which has no flags of CNI's
	leases := func() string {
		files, err := filepath.Glob(n.path("ipam", bridge, "10.*"))
		must(t, err)
		return strings.Join(files, " ")
	}
	if want := n.path("ipam", bridge, b); leases() != want {
		t.Errorf("leases %s, want %s", leases(), want)
	}
	n.ok("down", "--all")
	if leases() != "" {
		t.Errorf("leases %s", leases())
	}
}
