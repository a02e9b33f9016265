package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// initContainer is a line of a pod's spec for manifest: an init container in the test image that shares the
// directory /data with all others of withData.
func initContainer(name, script string, more ...string) string {
	return "- {name: " + name + ", image: " + box + ", command: [sh, -c, " + asJSON(script) + "], volumeMounts: [{name: data, mountPath: /data}]" +
		strings.Join(append([]string{""}, more...), ", ") + "}"
}

// withData is a pod with init containers whose container shares /data with them.
func withData(name, policy, script string, inits ...string) string {
	spec := append([]string{"volumes: [{name: data, emptyDir: {}}]", "initContainers:"}, inits...)
	return inContainer(manifest(name, policy, script, spec...), "volumeMounts: [{name: data, mountPath: /data}]")
}

func TestInitContainers(t *testing.T) {
	n := newNode(t)
	r := n.once(withData("job", "OnFailure", "cat /data/order; echo main",
		initContainer("one", "echo one >>/data/order; [ -e /data/again ] || { touch /data/again; exit 1; }"),
		initContainer("two", "echo two >>/data/order")))
	if r.code != 0 {
		t.Fatal(r)
	}
	if got := n.ok("logs", "job", "-c", "c"); got != "one\none\ntwo\nmain\n" {
		t.Errorf("order: %q", got)
	}
	s := n.pod("job-n").Status
	if s.InitContainerStatuses[0].RestartCount != 1 || s.InitContainerStatuses[1].RestartCount != 0 || s.Phase != v1.PodSucceeded {
		t.Errorf("status: %s", asJSON(s))
	}
	r = n.once(withData("bad", "Never", "echo main", initContainer("one", "echo why it failed; exit 3")))
	if r.code != 1 || !strings.Contains(r.stdout, "why it failed") {
		t.Error(r)
	}
	if s := n.pod("bad-n").Status; s.Phase != v1.PodFailed || s.InitContainerStatuses[0].State.Terminated.ExitCode != 3 {
		t.Errorf("status: %s", asJSON(s))
	}
}

func TestSidecarOfAJob(t *testing.T) {
	n := newNode(t)
	sidecar := initContainer("side", `trap "echo TERM after $(cat /data/main) >>/data/log; cat /data/log; exit 0" TERM; echo up >/data/log; while :; do sleep 0.05; done`, "restartPolicy: Always")
	r := n.once(withGrace(withData("job", "Never", "cat /data/log; echo main >/data/main", sidecar,
		initContainer("check", "until [ -e /data/log ]; do sleep 0.02; done")), 30))
	if r.code != 0 {
		t.Fatal(r)
	}
	s := n.pod("job-n").Status
	if side := s.InitContainerStatuses[0]; s.Phase != v1.PodSucceeded || side.State.Terminated == nil || side.RestartCount != 0 {
		t.Errorf("status: %s", asJSON(s))
	}
	if got := n.ok("logs", "job", "-c", "c"); got != "up\n" {
		t.Errorf("the sidecar was not up first: %q", got)
	}
	if got := n.ok("logs", "job", "-c", "side"); !strings.Contains(got, "TERM after") {
		t.Errorf("the sidecar was not asked to end: %q", got)
	}
}

func TestSidecarOfAService(t *testing.T) {
	n := newNode(t)
	log := n.path("order")
	say := func(who string) string {
		return `trap "echo ` + who + ` >>/order/log; exit 0" TERM; while :; do sleep 0.05; done`
	}
	mount := ", volumeMounts: [{name: order, mountPath: /order}]"
	m := manifest("web", "Always", say("main"), "volumes: [{name: order, hostPath: {path: "+log+", type: DirectoryOrCreate}}]", "initContainers:",
		"- {name: s1, image: "+box+", restartPolicy: Always, command: [sh, -c, "+asJSON(say("s1"))+"]"+mount+"}",
		"- {name: s2, image: "+box+", restartPolicy: Always, command: [sh, -c, "+asJSON(say("s2"))+"]"+mount+"}")
	n.write("web.yaml", inContainer(withGrace(m, 20), "volumeMounts: [{name: order, mountPath: /order}]"))
	n.serve()
	p := n.ready("web-n")
	main := p.Status.ContainerStatuses[0]
	n.kill(p, "s1")
	p = n.awaitPod("web-n", "to have its sidecar back", func(p *v1.Pod) error {
		if s := p.Status.InitContainerStatuses[0]; s.RestartCount != 1 || s.State.Running == nil {
			return errors.New(asJSON(s))
		}
		return isReady(p)
	})
	if got := p.Status.ContainerStatuses[0]; got.ContainerID != main.ContainerID || got.RestartCount != 0 {
		t.Errorf("the main container did not stay: %s", asJSON(got))
	}
	n.remove("web.yaml")
	n.gone("web-n")
	got, err := os.ReadFile(filepath.Join(log, "log"))
	must(t, err)
	if string(got) != "main\ns2\ns1\n" {
		t.Errorf("ended in the order %q", got)
	}
}

func TestTerminationMessage(t *testing.T) {
	n := newNode(t)
	job := func(name, script string, lines ...string) string {
		return inContainer(manifest(name, "Never", script), lines...)
	}
	for _, c := range []struct{ name, manifest, want string }{
		{"file", job("file", "printf why >/dev/termination-log; exit 3"), "why"},
		{"other", job("other", "echo why >/tmp/why; exit 3", "terminationMessagePath: /tmp/why", "terminationMessagePolicy: FallbackToLogsOnError"), "why\n"},
		{"log", job("log", "echo one; echo two >&2; exit 3", "terminationMessagePolicy: FallbackToLogsOnError"), "two\n"},
		{"fine", job("fine", "echo one", "terminationMessagePolicy: FallbackToLogsOnError"), ""},
	} {
		n.once(c.manifest)
		got := n.pod(c.name + "-n").Status.ContainerStatuses[0].State.Terminated
		// Lines of the two streams come in any order.
		if got == nil || !strings.Contains(got.Message, c.want) || c.want == "" && got.Message != "" {
			t.Errorf("%s: %s, want message %q", c.name, asJSON(got), c.want)
		}
	}
}

func TestTerminationMessagesOfACrashLoop(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", "echo run >/dev/termination-log; exit 1"))
	n.serve()
	p := n.awaitPod("a-n", "to wait after its second run", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses[0]; s.RestartCount != 1 || s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" {
			return errors.New(asJSON(s))
		}
		return nil
	})
	if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Message != "run\n" {
		t.Errorf("last state: %s", asJSON(last))
	}
	left, err := filepath.Glob(n.path("root", "pods", string(p.UID), "log.c.*", "termination-log"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestActiveDeadline(t *testing.T) {
	n := newNode(t)
	r := n.once(manifest("job", "Never", forever, "activeDeadlineSeconds: 1"))
	if s := n.pod("job-n").Status; r.code != 1 || s.Phase != v1.PodFailed || s.Reason != "DeadlineExceeded" {
		t.Errorf("%v\n%s", r, asJSON(s))
	}
	// A service that is given a deadline while it runs, and podrun restarted meanwhile.
	n.write("web.yaml", manifest("web", "Always", forever))
	n.serve()
	pid := n.mainPID(n.ready("web-n"), "c")
	n.write("web.yaml", manifest("web", "Always", forever, "activeDeadlineSeconds: 3600"))
	p := n.awaitPod("web-n", "to have a deadline", func(p *v1.Pod) error {
		if p.Spec.ActiveDeadlineSeconds == nil {
			return errors.New("it has none")
		}
		return isReady(p)
	})
	if again := n.mainPID(p, "c"); again != pid {
		t.Errorf("process %d became %d", pid, again)
	}
	n.end(syscall.SIGKILL)
	n.write("web.yaml", manifest("web", "Always", forever, "activeDeadlineSeconds: 1"))
	n.serve()
	n.awaitPod("web-n", "to have failed", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "DeadlineExceeded" || p.Status.ContainerStatuses[0].State.Terminated == nil {
			return errors.New(asJSON(p.Status))
		}
		return nil
	})
}

func TestLabelsChangeInPlace(t *testing.T) {
	n := newNode(t)
	good := manifest("a", "Always", forever)
	n.write("a.yaml", good)
	n.serve()
	before := n.ready("a-n")
	pid := n.mainPID(before, "c")
	applied := strings.Replace(good, "  name: a\n", "  name: a\n  labels: {edit: one}\n  annotations: {note: two}\n", 1)
	n.write("a.yaml", applied)
	same := func() {
		t.Helper()
		p := n.awaitPod("a-n", "to have the label", func(p *v1.Pod) error {
			if p.Labels["edit"] != "one" || p.Annotations["note"] != "two" {
				return errors.New(asJSON(p.ObjectMeta))
			}
			return isReady(p)
		})
		const hash = "podrun.io/manifest-hash"
		if p.UID != before.UID || p.Annotations[hash] == before.Annotations[hash] ||
			p.Annotations["kubernetes.io/config.hash"] != string(p.UID) || n.mainPID(p, "c") != pid {
			t.Errorf("before: %s\nafter: %s", asJSON(before.ObjectMeta), asJSON(p.ObjectMeta))
		}
	}
	same()
	n.end(syscall.SIGKILL)
	n.diff(0, "= keep default/a-n ")
	n.write("a.yaml", strings.Replace(applied, "edit: one", "edit: two", 1))
	n.diff(1, "~ update default/a-n ", ": in place\n", "    metadata.labels.edit: ")
	n.write("a.yaml", applied)
	n.serve()
	same()
}

// diff runs podrun diff and checks its exit code and that it prints all of want.
func (n *node) diff(code int, want ...string) {
	n.t.Helper()
	r := n.run("diff", "--manifests="+n.manifests, "--node-name=n")
	lacks := func(text string) bool { return !strings.Contains(r.stdout, text) }
	if r.code != code || slices.ContainsFunc(want, lacks) {
		n.t.Errorf("diff: %v; want exit code %d and %q", r, code, want)
	}
}

func TestRestartRules(t *testing.T) {
	n := newNode(t)
	rules := []string{"restartPolicy: Never", "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]", "volumeMounts: [{name: data, mountPath: /data}]"}
	job := func(name, script string) string {
		return inContainer(manifest(name, "Never", script, "volumes: [{name: data, emptyDir: {}}]"), rules...)
	}
	r := n.once(job("again", "[ -e /data/ran ] && exit 0; touch /data/ran; exit 42"))
	if s := n.pod("again-n").Status; r.code != 0 || s.Phase != v1.PodSucceeded || s.ContainerStatuses[0].RestartCount != 1 {
		t.Errorf("%v\n%s", r, asJSON(s))
	}
	// One end has all restart, what has completed too.
	rules[1] = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]"
	r = n.once(inContainer(withData("all", "Never", "[ -e /data/again ] && exit 0; touch /data/again; exit 88", initContainer("i", "true")), rules[:2]...))
	if n.pod("all-n") == nil {
		t.Fatal(r)
	}
	if s := n.pod("all-n").Status; r.code != 0 || s.ContainerStatuses[0].RestartCount != 1 || s.InitContainerStatuses[0].RestartCount != 1 {
		t.Errorf("%v\n%s", r, asJSON(s))
	}
	r = n.once(job("not", "exit 1"))
	if s := n.pod("not-n").Status; r.code != 1 || s.Phase != v1.PodFailed || s.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("%v\n%s", r, asJSON(s))
	}
}

func TestAPodThatCannotRunNowWaits(t *testing.T) {
	n := newNode(t)
	dir := n.path("mounted-later")
	n.write("a.yaml", inContainer(manifest("a", "Always", forever, "volumes: [{name: v, hostPath: {path: "+dir+", type: Directory}}]"), "volumeMounts: [{name: v, mountPath: /v}]"))
	n.write("b.yaml", manifest("b", "Always", forever, "nodeSelector: {kubernetes.io/hostname: elsewhere}"))
	const claim = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]"
	n.write("c.yaml", inContainer(manifest("c", "Always", forever, claim), "resources: {requests: {memory: 100Ti}}", "volumeMounts: [{name: v, mountPath: /v}]"))
	must(t, os.MkdirAll(n.path("root/claims/default/data/kept"), 0o700))
	n.serve()
	waits := func(reason string) func(p *v1.Pod) error {
		return func(p *v1.Pod) error {
			if w := p.Status.ContainerStatuses[0].State.Waiting; p.Status.Phase != v1.PodPending || p.Status.Reason != reason && (w == nil || w.Reason != reason) {
				return errors.New(asJSON(p.Status))
			}
			return nil
		}
	}
	n.awaitPod("a-n", "to wait for its directory", func(p *v1.Pod) error {
		w := p.Status.ContainerStatuses[0].State.Waiting
		ready := p.Status.Conditions[0]
		if w == nil || w.Reason != "ContainerCreating" || !strings.Contains(w.Message, dir) ||
			ready.Type != v1.PodReadyToStartContainers || ready.Status != v1.ConditionFalse || ready.Reason != "FailedMount" {
			return errors.New(asJSON(p.Status))
		}
		return nil
	})
	for _, command := range [][]string{{"get", "pods"}, {"describe", "pod", "a-n"}, {"events", "a-n"}} {
		n.await("the error of the mount", func() error {
			if show := n.ok(command...); !strings.Contains(show, "volume \"v\": hostPath type check failed: "+dir+" does not exist") {
				return fmt.Errorf("%s says\n%s", command, show)
			}
			return nil
		})
	}
	n.awaitPod("b-n", "to wait for another node", waits("NodeAffinity"))
	n.awaitPod("c-n", "to wait for memory", waits("OutOfmemory"))
	if r := n.run("volumes", "rm", "data"); r.code != 1 || !strings.Contains(r.stderr, "in use by pod c-n, which must be removed first") {
		t.Errorf("the volume of a pod that waits is removed: %+v", r)
	}
	if volumes := n.ok("get", "volumes"); !strings.Contains(volumes, "c-n") {
		t.Errorf("the pod that waits does not have its volume:\n%s", volumes)
	}
	must(t, os.Mkdir(dir, 0o755))
	n.write("b.yaml", manifest("b", "Always", forever, "nodeSelector: {kubernetes.io/hostname: \"n\", kubernetes.io/os: linux}"))
	n.write("c.yaml", inContainer(manifest("c", "Always", forever, claim), "resources: {requests: {memory: 1Mi}}", "volumeMounts: [{name: v, mountPath: /v}]"))
	for _, name := range []string{"a-n", "b-n", "c-n"} {
		n.ready(name)
	}
	n.says("c", "ls /v", "kept")
}

func TestRoomForPods(t *testing.T) {
	n := newNode(t)
	var info unix.Sysinfo_t
	must(t, unix.Sysinfo(&info))
	half := fmt.Sprintf("resources: {requests: {memory: %d}}", info.Totalram*uint64(info.Unit)/100*60)
	for _, name := range []string{"a", "b"} {
		n.write(name+".yaml", inContainer(manifest(name, "Always", forever), half))
	}
	n.serve()
	var first, second string
	n.await("one of both to run", func() error {
		for name, p := range n.pods() {
			if p.Status.Phase == v1.PodRunning {
				first, second = name, map[string]string{"a-n": "b-n", "b-n": "a-n"}[name]
				return nil
			}
		}
		return errors.New("none")
	})
	n.ready(first)
	wait := func(p *v1.Pod) error {
		if p.Status.Reason != "OutOfmemory" || !strings.Contains(p.Status.Message, "enough resource: memory, requested") {
			return errors.New(asJSON(p.Status))
		}
		return nil
	}
	n.awaitPod(second, "to wait for memory", wait)
	// Whoever runs is there first for the next podrun too.
	n.end(syscall.SIGKILL)
	n.serve()
	n.awaitPod(second, "to go on waiting", wait)
	n.ready(first)
	n.remove(strings.TrimSuffix(first, "-n") + ".yaml")
	n.ready(second)
}

func TestResourcesChangeInPlace(t *testing.T) {
	n := newNode(t)
	sized := func(memory string) string {
		return inContainer(manifest("a", "Always", forever), "resources: {limits: {cpu: 500m, memory: "+memory+"}}")
	}
	limit := func() string {
		return n.ok("exec", "a", "--", "sh", "-c", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max")
	}
	n.write("a.yaml", sized("32Mi"))
	n.serve()
	before := n.ready("a-n")
	pid := n.mainPID(before, "c")
	for _, c := range []struct{ memory, want string }{{"64Mi", "67108864\n"}, {"24Mi", "25165824\n"}} {
		n.write("a.yaml", sized(c.memory))
		n.await("the limit of "+c.memory, func() error {
			if got := limit(); got != c.want {
				return errors.New(got)
			}
			return nil
		})
	}
	p := n.ready("a-n")
	if p.UID != before.UID || n.mainPID(p, "c") != pid || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("before: %s\nafter: %s", asJSON(before.Status), asJSON(p.Status))
	}
	// What it crashed for want of, it has when it comes back.
	n.end(syscall.SIGKILL)
	n.diff(0, "= keep ")
	n.write("a.yaml", sized("128Mi"))
	n.diff(1, "~ update default/a-n ", ": in place\n", ".memory: ")
	n.kill(p, "c")
	n.serve()
	n.restarted("a-n", 1)
	if got := limit(); got != "134217728\n" {
		t.Errorf("after a restart: %q", got)
	}
}

func TestResizePolicy(t *testing.T) {
	n := newNode(t)
	sized := func(cpu, memory string) string {
		return inContainer(manifest("a", "OnFailure", `trap "exit 0" TERM; while :; do sleep 0.05; done`), "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]",
			"resources: {limits: {cpu: "+cpu+", memory: "+memory+"}, requests: {cpu: 1m}}")
	}
	n.write("a.yaml", sized("500m", "32Mi"))
	n.serve()
	before := n.ready("a-n")
	n.write("a.yaml", sized("500m", "64Mi"))
	p := n.restarted("a-n", 1)
	if got := cgroupFile(t, n.mainPID(p, "c"), "memory", "memory.limit_in_bytes", "memory.max"); got != "67108864" || p.UID != before.UID {
		t.Errorf("limit %s, %s", got, asJSON(p.Status))
	}
	pid := n.mainPID(p, "c")
	n.write("a.yaml", sized("500m", "100Ti"))
	pending := func(p *v1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodResizePending && c.Reason == v1.PodReasonInfeasible {
				return isReady(p)
			}
		}
		return errors.New(asJSON(p.Status))
	}
	n.awaitPod("a-n", "to be told that this cannot be", pending)
	n.end(syscall.SIGKILL)
	n.diff(1, "~ update default/a-n ", ": restarts container c\n", ".memory: ")
	n.serve()
	n.awaitPod("a-n", "to be told so again", pending)
	n.write("a.yaml", sized("250m", "64Mi"))
	p = n.awaitPod("a-n", "to have less CPU", func(p *v1.Pod) error {
		if got := p.Status.ContainerStatuses[0].Resources.Limits.Cpu().String(); got != "250m" {
			return errors.New(got)
		}
		return isReady(p)
	})
	if p.Status.ContainerStatuses[0].RestartCount != 1 || n.mainPID(p, "c") != pid || len(p.Status.Conditions) != 5 {
		t.Errorf("%s", asJSON(p.Status))
	}
}

func TestDownInAHurry(t *testing.T) {
	n := newNode(t)
	deaf := withGrace(manifest("a", "Always", `trap "" TERM; while :; do sleep 1; done`), 3600)
	if r := n.once(deaf); r.code != 0 {
		t.Fatal(r)
	}
	if r := n.run("down", "--grace-period=-1", "--all"); r.code != 2 {
		t.Error(r)
	}
	n.ok("down", "--grace-period=0", "--all")
	if p := n.pod("a-n"); p != nil {
		t.Errorf("still there: %s", asJSON(p.Status))
	}
}
