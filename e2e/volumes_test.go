package e2e

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test"
)

const mounting = `apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {fsGroup: 4242}
  initContainers:
  - name: first
    image: podrun.example/box:1
    command: [sh, -c, "echo \"FROM_FILE='from a file'\" >/disk/vars"]
    volumeMounts: [{name: disk, mountPath: /disk}]
  containers:
  - name: c
    image: podrun.example/box:1
    command: [sleep, 1d]
    env:
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: VALUE, valueFrom: {fileKeyRef: {volumeName: disk, path: vars, key: FROM_FILE}}}
    volumeMounts: &mounts
    - {name: memory, mountPath: /memory}
    - {name: disk, mountPath: /disk}
    - {name: disk, mountPath: /part, subPathExpr: made/$(NAME)}
    - {name: disk, mountPath: /etc/hosts, subPath: vars}
    - {name: claim, mountPath: /claim}
    - {name: host, mountPath: /host, readOnly: true, recursiveReadOnly: Enabled}
    - {name: live, mountPath: /live, mountPropagation: HostToContainer}
    - {name: host, mountPath: /apart, readOnly: true}
  - name: d
    image: podrun.example/box:1
    command: [sleep, 1d]
    env: [{name: NAME, value: d}]
    volumeMounts: *mounts
  volumes:
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 10Mi}}
  - {name: disk, emptyDir: {}}
  - {name: claim, persistentVolumeClaim: {claimName: data}}
  - {name: host, hostPath: {path: HOST, type: Directory}}
  - {name: live, hostPath: {path: LIVE}}
`

// TestKindsOfVolumes: what is shared, sized, owned, kept apart and kept, in real containers.
func TestKindsOfVolumes(t *testing.T) {
	n := newNode(t)
	host, live := n.path("host"), n.path("live")
	must(t, errors.Join(os.MkdirAll(host+"/sub", 0o755), os.MkdirAll(live, 0o755)))
	for _, at := range []string{host + "/sub", live} {
		must(t, unix.Mount("tmpfs", at, "tmpfs", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	must(t, unix.Mount("", live, "", unix.MS_SHARED, ""))
	text := strings.NewReplacer("HOST", host, "LIVE", live).Replace(mounting)
	n.write("a.yaml", text)
	n.serve()
	p := n.ready("a-n")
	in := func(container, line string) string {
		t.Helper()
		return strings.TrimSuffix(n.ok("exec", "a", "-c", container, "--", "sh", "-c", line), "\n")
	}
	in("c", "echo shared >/memory/x; echo kept >/claim/x; echo mine >/part/x")
	for _, c := range []struct{ container, line, want string }{
		{"d", "cat /memory/x /claim/x", "shared\nkept"},
		{"d", "df -m /memory | tail -n1 | awk '{print $2}'", "10"},
		{"c", "dd if=/dev/zero of=/memory/full bs=1M count=20 2>/dev/null || echo full; rm /memory/full", "full"},
		{"d", "cat /disk/made/a-n/x; ls /part | wc -l; ls /disk/made", "mine\n0\na-n\nd"},
		{"c", "cat /etc/hosts; echo $VALUE", "FROM_FILE='from a file'\nfrom a file"},
		{"c", "stat -c %g /memory /disk /claim /disk/vars; id -G | tr ' ' '\\n' | grep 4242", "4242\n4242\n4242\n4242\n4242"},
		{"c", "touch /host/x /host/sub/x /apart/x 2>&1 | grep -c Read-only; touch /apart/sub/x && echo written", "3\nwritten"},
	} {
		if got := in(c.container, c.line); got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
	// A mount of the machine's comes after the container.
	must(t, os.Mkdir(live+"/later", 0o755))
	must(t, unix.Mount("tmpfs", live+"/later", "tmpfs", 0, ""))
	defer unix.Unmount(live+"/later", unix.MNT_DETACH)
	must(t, os.WriteFile(live+"/later/x", []byte("seen"), 0o644))
	n.says("a", "cat /live/later/x", "seen")

	// What containers share outlives each of them.
	must(t, syscall.Kill(n.mainPID(p, "c"), syscall.SIGKILL))
	n.restarted("a-n", 1)
	n.says("a", "cat /memory/x /part/x", "shared\nmine")

	n.remove("a.yaml")
	n.gone("a-n")
	if got := n.ok("get", "volumes"); !strings.Contains(got, "data") || !strings.Contains(got, "<none>") {
		t.Errorf("get volumes: %s", got)
	}
	n.write("b.yaml", strings.Replace(text, "name: a}", "name: b}", 1))
	n.ready("b-n")
	if got := n.shell("b", "cat /claim/x"); got != "kept" {
		t.Errorf("the next pod finds %q", got)
	}
	if r := n.run("volumes", "rm", "data"); r.code == 0 || !strings.Contains(r.stderr, "in use by pod b-n") {
		t.Errorf("volumes rm of one in use: %v", r)
	}
	n.remove("b.yaml")
	n.gone("b-n")
	n.ok("volumes", "rm", "data")
	if _, err := os.Stat(n.path("root", "claims", "default")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// TestEscapes: what a container puts into a volume neither shows another what is outside, nor makes podrun
// delete it.
func TestEscapes(t *testing.T) {
	n := newNode(t)
	precious := n.path("precious")
	must(t, os.MkdirAll(precious+"/sub", 0o755))
	must(t, os.WriteFile(precious+"/sub/file", []byte("mine"), 0o644))
	n.write("a.yaml", manifest("a", "Always", `ln -s `+precious+` /v/out; ln -s ../../../../../../../.. /v/up; ln -s /proc/1/root /v/proc; ln -s out /v/chain; mkdir /v/nested; exec sleep 1d`,
		"volumes: [{name: v, emptyDir: {}}, {name: shared, hostPath: {path: "+n.path("shared")+"}}]")+"    volumeMounts: [{name: shared, mountPath: /v}]\n")
	n.serve()
	n.ready("a-n")
	n.await("the links", func() error { _, err := os.Lstat(n.path("shared", "nested")); return err })
	for i, sub := range []string{"out", "out/sub/file", "up", "up/etc/passwd", "proc", "proc/etc", "chain/sub"} {
		name := "e" + string(rune('0'+i))
		n.write(name+".yaml", manifest(name, "Always", forever, "volumes: [{name: v, hostPath: {path: "+n.path("shared")+"}}]")+
			"    volumeMounts: [{name: v, mountPath: /v, subPath: "+sub+"}]\n")
		n.waits(name+"-n", "CreateContainerConfigError", "leads out of the volume")
		n.remove(name + ".yaml")
	}
	// A pod's own emptyDir full of links and with a foreign mount in it.
	n.write("b.yaml", manifest("b", "Always", `ln -s `+precious+` /v/out; mkdir /v/nested; exec sleep 1d`,
		"volumes: [{name: v, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}]")+"    volumeMounts: [{name: v, mountPath: /v}, {name: m, mountPath: /m}]\n")
	p := n.ready("b-n")
	nested := n.path("root", "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", "v", "nested")
	n.await("the directory", func() error { _, err := os.Lstat(nested); return err })
	must(t, unix.Mount(precious, nested, "", unix.MS_BIND, ""))
	n.remove("b.yaml")
	n.said("not removing")
	if b, err := os.ReadFile(precious + "/sub/file"); err != nil || string(b) != "mine" {
		t.Fatalf("outside: %q, %v", b, err)
	}
	must(t, unix.Unmount(nested, 0))
	n.gone("b-n")
	n.remove("a.yaml")
	n.gone("a-n")
	if b, err := os.ReadFile(filepath.Join(precious, "sub", "file")); err != nil || string(b) != "mine" {
		t.Errorf("outside: %q, %v", b, err)
	}
}

// TestRestartOnChange: the pod that asks for it is replaced when its ConfigMap is edited.
func TestRestartOnChange(t *testing.T) {
	n := newNode(t)
	n.write("m.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: one}\n")
	text := strings.Replace(manifest("a", "Always", forever), "  name: a\n", "  name: a\n  annotations: {podrun.io/restart-on-change: \"true\"}\n", 1) +
		"    env: [{name: K, valueFrom: {configMapKeyRef: {name: m, key: k}}}]\n"
	n.write("a.yaml", text)
	n.serve()
	p := n.ready("a-n")
	n.write("m.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: two}\n")
	n.says("a", "echo $K", "two")
	if now := n.ready("a-n"); now.UID == p.UID {
		t.Error("the pod has not been replaced")
	}
	// Neither podrun's end nor the ConfigMap's is a change.
	p = n.ready("a-n")
	pid := n.mainPID(p, "c")
	n.end(syscall.SIGKILL)
	n.serve()
	n.remove("m.yaml")
	n.write("b.yaml", manifest("b", "Always", forever))
	n.ready("b-n")
	if now := n.ready("a-n"); n.mainPID(now, "c") != pid {
		t.Error("the pod has been replaced for nothing")
	}
}

// TestImageVolumes: an image's files, whole and in part, read-only; a pod waits for one that is missing.
func TestImageVolumes(t *testing.T) {
	n := newNode(t)
	with := func(name, spec, mount string) string {
		return manifest(name, "Always", forever, "volumes: [{name: v, image: "+spec+"}]") + "    volumeMounts: [{name: v, mountPath: /v" + mount + "}]\n"
	}
	n.write("a.yaml", with("a", "{reference: podrun.example/box:1}", ""))
	n.write("b.yaml", with("b", "{reference: podrun.example/box:1, pullPolicy: Never}", ", subPath: bin"))
	n.write("c.yaml", with("c", "{reference: podrun.example/box:1}", ", subPath: none"))
	n.write("d.yaml", with("d", "{reference: podrun.example/none:1, pullPolicy: Never}", ""))
	n.serve()
	n.waits("c-n", "CreateContainerConfigError", `subPath "none" is not in the volume`)
	n.waits("d-n", "ErrImageNeverPull", `image "podrun.example/none:1" of volume "v"`)
	for pod, line := range map[string]string{"a": "/v/bin/busybox echo runs; touch /v/x || echo kept", "b": "/v/busybox echo runs; touch /v/x || echo kept"} {
		n.ready(pod + "-n")
		if got := n.shell(pod, line+" 2>/dev/null"); got != "runs\nkept" {
			t.Errorf("%s: %q", pod, got)
		}
	}
	p := n.pod("a-n")
	of := p.Status.ContainerStatuses[0]
	if v := of.VolumeMounts[0].VolumeStatus; v == nil || v.Image.ImageRef != of.ImageID {
		t.Errorf("the volume's image is %+v, the container's %s", v, of.ImageID)
	}
	must(t, syscall.Kill(n.mainPID(p, "c"), syscall.SIGKILL))
	n.restarted("a-n", 1)
	n.says("a", "/v/bin/busybox echo again", "again")
}

// TestKilledWithVolumes: podrun is killed at random moments while pods with volumes of every kind come, change
// and go, PODRUN_KILL_ROUNDS times. Nothing of them stays, and the next one finds its way.
func TestKilledWithVolumes(t *testing.T) {
	n := newNode(t)
	precious := n.path("precious")
	must(t, os.Mkdir(precious, 0o755))
	must(t, os.WriteFile(precious+"/file", []byte("mine"), 0o644))
	const volumes = `volumes: [{name: m, emptyDir: {medium: Memory}}, {name: c, configMap: {name: settings}}, {name: s, secret: {secretName: login}}, ` +
		`{name: i, image: {reference: podrun.example/box:1}}, {name: p, persistentVolumeClaim: {claimName: data}}, {name: d, emptyDir: {}}, {name: h, hostPath: {path: HOST}}]`
	const mounts = `volumeMounts: [{name: m, mountPath: /m}, {name: c, mountPath: /c}, {name: s, mountPath: /s}, {name: i, mountPath: /i, subPath: bin}, ` +
		`{name: p, mountPath: /p, subPath: part}, {name: d, mountPath: /d}, {name: h, mountPath: /h, subPath: file}, {name: d, mountPath: /e, subPath: x/y}]`
	text := func(name string) string {
		return strings.Replace(inContainer(manifest(name, "Always", "ln -s "+precious+" /d/out; exec sleep 1d", volumes), mounts,
			"env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: login, key: password}}}]"), "HOST", precious, 1)
	}
	seed, rounds := test.Number(t, "PODRUN_E2E_SEED", int(time.Now().UnixNano()%1e9)), test.Number(t, "PODRUN_KILL_ROUNDS", 12)
	t.Logf("PODRUN_E2E_SEED=%d", seed)
	random := rand.New(rand.NewSource(int64(seed)))
	n.write("login.yaml", fmt.Sprintf(password, "w0rd"))
	for i := range rounds {
		n.write("settings.yaml", fmt.Sprintf(settings, fmt.Sprintf("round%d", i)))
		for _, name := range []string{"a", "b"} {
			if random.Intn(3) > 0 {
				n.write(name+".yaml", text(name))
			} else if _, err := os.Stat(filepath.Join(n.manifests, name+".yaml")); err == nil {
				n.remove(name + ".yaml")
			}
		}
		n.serve()
		time.Sleep(time.Duration(random.Intn(400)) * time.Millisecond) // the moment is what is random
		n.end(syscall.SIGKILL)
	}
	n.write("a.yaml", text("a"))
	n.write("b.yaml", text("b"))
	n.serve()
	for _, name := range []string{"a", "b"} {
		n.ready(name + "-n")
		n.says(name, "cat /c/greeting /s/password /h; echo $PASSWORD; /i/busybox echo runs; touch /m/x /p/x /e/x && ls /d/x/y", fmt.Sprintf("round%dw0rdminew0rd\nruns\nx", rounds-1))
	}
	for _, name := range []string{"a", "b"} {
		n.remove(name + ".yaml")
		n.gone(name + "-n")
	}
	if left, err := filepath.Glob(n.path("root", "pods", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if b, err := os.ReadFile(precious + "/file"); err != nil || string(b) != "mine" {
		t.Errorf("outside: %q, %v", b, err)
	}
}

// TestOnceNeedsAll: under once nothing can come later, so that it is known at once what is missing.
func TestOnceNeedsAll(t *testing.T) {
	n := newNode(t)
	job := inContainer(manifest("a", "Never", "echo $K"), "env: [{name: K, valueFrom: {configMapKeyRef: {name: m, key: k}}}]")
	if r := n.once(job); r.code != 2 || !strings.Contains(r.stderr, `pod default/a-n needs the ConfigMap "m", which no manifest has`) {
		t.Errorf("without its ConfigMap: %v", r)
	}
	if r := n.once(job + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: found}\n"); r.code != 0 {
		t.Errorf("with its ConfigMap: %v", r)
	}
	if got := n.ok("logs", "a"); got != "found\n" {
		t.Errorf("%q", got)
	}
}

// TestSizeLimit: a pod that outgrows a limit of its disk fails, and stays so: by what is in an emptyDir, in
// its root filesystem, in the files that podrun provides, in its logs, or in all together. One within its limits runs on.
func TestSizeLimit(t *testing.T) {
	n := newNode(t)
	with := func(name, script string) string {
		return inContainer(manifest(name, "Always", script, "volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]"), "volumeMounts: [{name: v, mountPath: /v}]")
	}
	n.write("a.yaml", with("a", "dd if=/dev/zero of=/v/x bs=1M count=2; "+forever))
	n.write("b.yaml", with("b", "dd if=/dev/zero of=/v/x bs=1k count=9; "+forever))
	limited := func(name, script string) {
		n.write(name+".yaml", inContainer(manifest(name, "Always", script, "volumes: [{name: v, emptyDir: {}}]"), "volumeMounts: [{name: v, mountPath: /v}]", "resources: {limits: {ephemeral-storage: 1Mi}}"))
	}
	limited("root", "dd if=/dev/zero of=/x bs=1M count=2; "+forever)
	limited("log", "dd if=/dev/zero bs=1M count=2 | tr '\\0' '\\n'; "+forever)
	limited("etc", "dd if=/dev/zero of=/etc/hosts bs=1M count=1; dd if=/dev/zero of=/etc/resolv.conf bs=1M count=1; "+forever)
	limited("sum", "dd if=/dev/zero of=/v/x bs=1k count=600; dd if=/dev/zero of=/x bs=1k count=600; "+forever)
	limited("less", "dd if=/dev/zero of=/v/x bs=1k count=300; dd if=/dev/zero of=/x bs=1k count=300; "+forever)
	n.serve()
	n.ready("b-n")
	evicted := func() {
		for name, why := range map[string]string{
			"a-n": `EmptyDir volume "v" exceeds the limit "1Mi"`, "root-n": "exceeds the total limit of containers 1Mi",
			"etc-n": "exceeds the total limit of containers 1Mi", "log-n": "exceeds the total limit of containers 1Mi", "sum-n": "exceeds the total limit of containers 1Mi",
		} {
			n.awaitPod(name, "to be evicted", func(p *v1.Pod) error {
				if p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted" && strings.Contains(p.Status.Message, why) {
					return nil
				}
				return errors.New(asJSON(p.Status))
			})
		}
		n.await("the space of its volume to be given back", func() error {
			if _, err := os.Stat(n.path("root", "pods", string(n.pod("a-n").UID), "volumes", "kubernetes.io~empty-dir")); err == nil {
				return errors.New("its directory is there")
			}
			return nil
		})
		n.ready("b-n")
		n.ready("less-n")
	}
	evicted()
	n.end(syscall.SIGKILL)
	n.serve()
	evicted()
}

// TestBidirectional: what a privileged container mounts comes to the machine, and from there to another.
func TestBidirectional(t *testing.T) {
	n := newNode(t)
	live := n.path("live")
	must(t, os.MkdirAll(live+"/made", 0o755))
	must(t, unix.Mount("tmpfs", live, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(live, unix.MNT_DETACH) })
	must(t, errors.Join(os.MkdirAll(live+"/made", 0o755), unix.Mount("", live, "", unix.MS_SHARED, "")))
	with := func(name, script, propagation, more string) string {
		return inContainer(manifest(name, "Always", script, "volumes: [{name: v, hostPath: {path: "+live+"}}]"),
			"volumeMounts: [{name: v, mountPath: /v, mountPropagation: "+propagation+"}]", more)
	}
	n.write("b.yaml", with("b", forever, "HostToContainer", ""))
	n.write("c.yaml", with("c", forever, "None", ""))
	n.serve()
	n.ready("b-n")
	n.ready("c-n")
	n.write("a.yaml", with("a", "mount -t tmpfs x /v/made && echo seen >/v/made/x; "+forever, "Bidirectional", "securityContext: {privileged: true}"))
	n.ready("a-n")
	n.says("b", "cat /v/made/x", "seen")
	if b, err := os.ReadFile(live + "/made/x"); err != nil || string(b) != "seen\n" {
		t.Errorf("on the machine: %q, %v", b, err)
	}
	if got := n.shell("c", "ls /v/made"); got != "" {
		t.Errorf("without propagation: %q", got)
	}
	must(t, unix.Unmount(live+"/made", 0))
	n.says("b", "ls /v/made", "")
}

// TestFlagsOfVolumes: what podrun mounts without devices and set-user-ID bits has none in containers either, also where it is
// read-only.
func TestFlagsOfVolumes(t *testing.T) {
	n := newNode(t)
	p := manifest("flags", "Always", forever, "volumes:", "- {name: m, emptyDir: {medium: Memory}}", "- {name: s, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}")
	n.write("a.yaml", inContainer(p, "volumeMounts:", "- {name: m, mountPath: /ro, readOnly: true}", "- {name: m, mountPath: /rw}",
		"- {name: m, mountPath: /part, subPath: part, readOnly: true}", "- {name: s, mountPath: /s}"))
	n.serve()
	n.ready("flags-n")
	for at, mode := range map[string]string{"/ro": "ro", "/rw": "rw", "/part": "ro", "/s": "ro"} {
		options := n.shell("flags", `while read -r a b c d at options e; do [ "$at" = `+at+` ] && echo "$options"; done </proc/self/mountinfo; true`)
		for _, want := range []string{mode, "nosuid", "nodev"} {
			if !slices.Contains(strings.Split(options, ","), want) {
				t.Errorf("%s: %s, want %s", at, options, want)
			}
		}
	}
}
