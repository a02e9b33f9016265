package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestExec(t *testing.T) {
	n := newNode(t)
	if r := n.once(manifest("a", "Always", forever)); r.code != 0 {
		t.Fatal(r)
	}
	for _, c := range []struct {
		name, stdin string
		args        []string
		want        result
	}{
		{"exit code", "", []string{"sh", "-c", "exit 42"}, result{42, "", "command terminated with exit code 42\n"}},
		{"streams", "", []string{"sh", "-c", "echo out; echo err >&2"}, result{0, "out\n", "err\n"}},
		{"arguments stay apart", "", []string{"echo", "a  b", "-c"}, result{0, "a  b -c\n", ""}},
		{"hostname", "", []string{"hostname"}, result{0, "a-n\n", ""}},
	} {
		args := append([]string{"exec", "a", "--"}, c.args...)
		if got := n.runIn(c.stdin, args...); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if got := n.runIn("typed\n", "exec", "-i", "a", "--", "cat"); got != (result{0, "typed\n", ""}) {
		t.Errorf("stdin: %v", got)
	}
	// Nobody reads on: neither podrun nor the command stays.
	for _, args := range [][]string{{"exec", "a", "--", "yes"}, {"exec", "-i", "a", "--", "yes"}} {
		unheard := n.command(context.Background(), args...)
		out, err := unheard.StdoutPipe()
		must(t, err)
		must(t, unheard.Start())
		_, err = io.ReadFull(out, make([]byte, 2))
		must(t, errors.Join(err, out.Close()))
		_ = unheard.Wait() // its exit code says it
		if code := unheard.ProcessState.ExitCode(); code != 141 {
			t.Errorf("%v: exit %d", args, code)
		}
		n.says("a", "ps | grep -c '[y]es' || true", "0")
	}
	if got := n.run("exec", "a", "-c", "nobody", "--", "true"); got.code == 0 || !strings.Contains(got.stderr, "nobody") {
		t.Errorf("a container that is not there: %v", got)
	}
	if got := n.run("exec", "b", "--", "true"); got.code == 0 || !strings.Contains(got.stderr, "b") {
		t.Errorf("a pod that is not there: %v", got)
	}
}

func TestLogs(t *testing.T) {
	n := newNode(t)
	if r := n.once(manifest("a", "Never", "for i in 1 2 3 4 5; do echo out $i; done; echo err >&2; printf unfinished")); r.code != 0 {
		t.Fatal(r)
	}
	got := n.run("logs", "a")
	if got != (result{0, "out 1\nout 2\nout 3\nout 4\nout 5\nunfinished", "err\n"}) && got != (result{0, "out 1\nout 2\nout 3\nout 4\nout 5\nunfinished\n", "err\n"}) {
		t.Errorf("logs: %v", got)
	}
	if got := n.run("logs", "--tail=3", "a"); strings.Contains(got.stdout, "out 3") || !strings.Contains(got.stdout, "unfinished") {
		t.Errorf("--tail=3: %v", got)
	}
	p := n.pod("a-n")
	file := n.path("log", fmt.Sprintf("default_a-n_%s", p.UID), "c", "0.log")
	data, err := os.ReadFile(file)
	must(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		fields := strings.SplitN(line, " ", 4)
		_, err := time.Parse(time.RFC3339Nano, fields[0])
		if err != nil || len(fields) != 4 || fields[1] != "stdout" && fields[1] != "stderr" || fields[2] != "F" && fields[2] != "P" {
			t.Errorf("not in CRI format: %q", line)
		}
	}
	stamped := n.ok("logs", "--timestamps", "--tail=2", "a")
	first, _, _ := strings.Cut(stamped, " ")
	if _, err := time.Parse(time.RFC3339Nano, first); err != nil {
		t.Errorf("--timestamps: %q", stamped)
	}
}

func TestLogsFollow(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Never", "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); sleep 0.01; done"))
	n.serve()
	n.awaitPod("a-n", "to run", func(p *v1.Pod) error {
		if p.Status.Phase == v1.PodPending {
			return errors.New("pending")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := outcome(t, n.command(ctx, "logs", "-f", "a"), "")
	if lines, err := whole(r.stdout); err != nil || lines != 200 || r.code != 0 {
		t.Errorf("%d lines, %v: %v", lines, err, r)
	}
}

func TestPodNetwork(t *testing.T) {
	n := newNode(t)
	two := manifest("web", "Always", "mkdir /www; echo hello >/www/index.html; exec httpd -f -p 80 -h /www") +
		"  - name: side\n    image: " + box + "\n    command: [sh, -c, " + asJSON(forever) + "]\n"
	n.write("web.yaml", two+"---\n"+manifest("other", "Always", forever))
	n.serve()
	p, other := n.ready("web-n"), n.ready("other-n")
	if p.Status.PodIP == "" || p.Status.PodIP == other.Status.PodIP {
		t.Fatalf("addresses %q and %q", p.Status.PodIP, other.Status.PodIP)
	}
	n.await("the web pod's answer", func() error {
		body, err := get("http://" + p.Status.PodIP + "/")
		if err == nil && body != "hello\n" {
			err = fmt.Errorf("body %q", body)
		}
		return err
	})
	// From the pod's other container by loopback, from the other pod by address.
	for pod, url := range map[string]string{"web": "127.0.0.1", "other": p.Status.PodIP} {
		container := map[string]string{"web": "side", "other": "c"}[pod]
		if got := n.ok("exec", pod, "-c", container, "--", "wget", "-qO-", "http://"+url+"/"); got != "hello\n" {
			t.Errorf("from %s: %q", pod, got)
		}
	}
	if got := n.ok("exec", "web", "-c", "side", "--", "hostname"); got != "web-n\n" {
		t.Errorf("hostname %q", got)
	}
}

func get(url string) (string, error) {
	return getBy(&http.Client{Timeout: 5 * time.Second}, url)
}

func getBy(client *http.Client, url string) (string, error) {
	r, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

func TestHostNetwork(t *testing.T) {
	n := newNode(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "from the host") }))
	r := n.once(manifest("a", "Never", "wget -qO- http://"+listener.Addr().String()+"/", "hostNetwork: true"), "--logs=all")
	if r.code != 0 || !strings.Contains(r.stdout, "from the host") {
		t.Error(r)
	}
}

func TestVolumes(t *testing.T) {
	n := newNode(t)
	data := n.path("data")
	must(t, os.Mkdir(data, 0o755))
	must(t, os.WriteFile(filepath.Join(data, "in"), []byte("from the host\n"), 0o644))
	m := inContainer(manifest("a", "Never", "cat /host/in; echo x 2>/dev/null >/host/in && exit 9; echo back >/host/out/file; echo shared >/tmp/empty/file",
		"volumes:", "- {name: empty, emptyDir: {}}", "- {name: data, hostPath: {path: "+data+", type: Directory}}",
		"- {name: out, hostPath: {path: "+data+"/out, type: DirectoryOrCreate}}"),
		"volumeMounts:", "- {name: empty, mountPath: /tmp/empty}", "- {name: data, mountPath: /host, readOnly: true}",
		"- {name: out, mountPath: /host/out}") +
		"  - name: second\n    image: " + box + "\n    command: [sh, -c, \"until [ -s /e/file ]; do sleep 0.05; done; cat /e/file\"]\n" +
		"    volumeMounts: [{name: empty, mountPath: /e}]\n"
	must(t, os.Mkdir(filepath.Join(data, "out"), 0o755))
	r := n.once(m, "--logs=all", "--timeout=60s")
	if r.code != 0 || !strings.Contains(r.stdout, "from the host") || !strings.Contains(r.stdout, "shared") {
		t.Fatal(r)
	}
	if got, _ := os.ReadFile(filepath.Join(data, "out", "file")); string(got) != "back\n" {
		t.Errorf("written to the host: %q", got)
	}
	n.refused(manifest("b", "Never", "true", "volumes: [{name: v, hostPath: {path: "+n.path("missing")+", type: Directory}}]")+
		"    volumeMounts: [{name: v, mountPath: /v}]\n", []string{n.path("missing")})
}

func TestLimits(t *testing.T) {
	n := newNode(t)
	m := inContainer(manifest("a", "Always", forever), "resources: {limits: {memory: 64Mi, cpu: 250m}, requests: {memory: 32Mi, cpu: 100m}}")
	if r := n.once(m); r.code != 0 {
		t.Fatal(r)
	}
	p := n.pod("a-n")
	if p.Status.QOSClass != v1.PodQOSBurstable {
		t.Errorf("QoS class %s", p.Status.QOSClass)
	}
	pid := n.mainPID(p, "c")
	memory := cgroupFile(t, pid, "memory", "memory.limit_in_bytes", "memory.max")
	if memory != "67108864" {
		t.Errorf("memory limit %s", memory)
	}
	quota := cgroupFile(t, pid, "cpu", "cpu.cfs_quota_us", "cpu.max")
	if quota != "25000" && quota != "25000 100000" {
		t.Errorf("CPU quota %s", quota)
	}
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must(t, err)
	want := fmt.Sprintf("/podrun/burstable/pod%s/%s\n", p.UID, id)
	if os.Getenv("PODRUN_E2E_CGROUP_DRIVER") == "systemd" {
		want = fmt.Sprintf("/podrun-burstable.slice/podrun-burstable-pod%s.slice/podrun-%s.scope\n", strings.ReplaceAll(string(p.UID), "-", "_"), id)
	}
	if !strings.Contains(string(groups), want) {
		t.Errorf("cgroups %s, want %s", groups, want)
	}
}

// cgroupFile reads a limit of a process, by its name in version 1 or 2.
func cgroupFile(t *testing.T, pid int, controller, v1Name, v2Name string) string {
	t.Helper()
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(groups)), "\n") {
		fields := strings.SplitN(line, ":", 3)
		file := filepath.Join("/sys/fs/cgroup", controller, fields[2], v1Name)
		if fields[1] == "" {
			file = filepath.Join("/sys/fs/cgroup", fields[2], v2Name)
		} else if !strings.Contains(","+fields[1]+",", ","+controller+",") {
			continue
		}
		if data, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	t.Fatalf("process %d has no %s or %s:\n%s", pid, v1Name, v2Name, groups)
	return ""
}

func TestMemoryLimitKills(t *testing.T) {
	n := newNode(t)
	m := inContainer(manifest("a", "Never", "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"), "resources: {limits: {memory: 16Mi}}")
	if r := n.once(m); r.code != 1 {
		t.Fatal(r)
	}
	if s := n.pod("a-n").Status.ContainerStatuses[0].State.Terminated; s.ExitCode != 137 || s.Reason != "OOMKilled" {
		t.Errorf("terminated: %s", asJSON(s))
	}
}

func TestImageDefaults(t *testing.T) {
	n := newNode(t)
	n.ok("images", "load", setup.tuned)
	// The image has sh -c and a CMD; args replace the CMD alone.
	m := `apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  restartPolicy: Never
  containers:
  - {name: default, image: IMAGE}
  - name: args
    image: IMAGE
    args: ["echo $FROM $BOTH $MINE '$(MINE)' '$$(MINE)' '$(NONE)'; id -u; id -g; pwd"]
    env: [{name: BOTH, value: pod}, {name: MINE, value: me}]
  - {name: dir, image: IMAGE, workingDir: /tmp, command: [pwd]}
`
	if r := n.once(strings.ReplaceAll(m, "IMAGE", tuned)); r.code != 0 {
		t.Fatal(r)
	}
	for container, want := range map[string]string{
		"default": "default cmd\n",
		"args":    "image pod me me $(MINE) $(NONE)\n65534\n65534\n/srv/app\n",
		"dir":     "/tmp\n",
	} {
		if got := n.ok("logs", "a", "-c", container); got != want {
			t.Errorf("%s: %q, want %q", container, got, want)
		}
	}
	if got := n.ok("images"); !strings.Contains(got, "podrun.example/tuned") {
		t.Errorf("images: %s", got)
	}
}

func TestMissingImage(t *testing.T) {
	n := newNode(t)
	m := strings.Replace(manifest("a", "Never", "true"), "image: "+box, "image: podrun.example/nowhere:1\n    imagePullPolicy: Never", 1)
	n.write("a.yaml", m)
	n.serve()
	n.awaitPod("a-n", "to say that its image is missing", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].State.Waiting == nil || s[0].State.Waiting.Reason != "ErrImageNeverPull" || p.Status.Phase != v1.PodPending {
			return errors.New(asJSON(p.Status))
		}
		return nil
	})
}
