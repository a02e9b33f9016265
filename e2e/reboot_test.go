package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testimage"
)

// machine makes a lane for a test that switches its machine off. When the test ends nothing may be left of it.
func machine(t *testing.T) *lane {
	t.Helper()
	if !wanted() {
		t.Skip("end-to-end tests run as root by make e2e (PODRUN_E2E=1)")
	}
	t.Parallel()
	l := newLane(t)
	t.Cleanup(func() {
		defer l.log.Close()
		defer func() {
			if t.Failed() {
				said, _ := os.ReadFile(l.log.Name())
				t.Logf("serve said:\n%s", said)
			}
		}()
		l.endServe(syscall.SIGTERM)
		l.ok("down", "--all")
		l.await("nothing to be left", l.left)
	})
	return l
}

// reboot switches the lane's machine off and on. Off is called in between.
func (l *lane) reboot(off func()) {
	l.t.Helper()
	l.powerOff()
	off()
	l.powerOn()
	if l.server != nil {
		must(l.t, l.server.Restart(context.Background()))
	}
}

// traced returns what the pod's containers wrote to /t/POD, a word for each line.
func (l *lane) traced(pod string) string {
	text, _ := os.ReadFile(l.path("trace", pod)) // none before the first
	return strings.Join(strings.Fields(string(text)), " ")
}

// awaitTrace waits until the pod's containers have written that.
func (l *lane) awaitTrace(pod, want string) {
	l.t.Helper()
	l.await(fmt.Sprintf("%s to have written %q", pod, want), func() error {
		if got := l.traced(pod); got != want {
			return fmt.Errorf("it wrote %q", got)
		}
		return nil
	})
}

// withTrace is a pod whose containers share /m, in memory, and /t, of the machine.
func (l *lane) withTrace(name, policy, script string, spec ...string) string {
	volumes := "volumes: [{name: t, hostPath: {path: " + l.path("trace") + ", type: Directory}}, {name: m, emptyDir: {medium: Memory}}]"
	return inContainer(manifest(name, policy, script, append([]string{volumes}, spec...)...), sharedMounts)
}

const sharedMounts = "volumeMounts: [{name: t, mountPath: /t}, {name: m, mountPath: /m}]"

// initLine is an init container of withTrace.
func initLine(name, script, more string) string {
	return fmt.Sprintf("- {name: %s, image: %s, command: [sh, -c, %s], %s%s}", name, box, asJSON(script), sharedMounts, more)
}

func phase(want v1.PodPhase, reason string) func(*v1.Pod) error {
	return func(p *v1.Pod) error {
		if p.Status.Phase != want || p.Status.Reason != reason {
			return errors.New(asJSON(p.Status))
		}
		return nil
	}
}

// TestReboot: after a reboot each pod begins as it does on a machine that never ran it, in its order, and keeps its
// restart counts. What had completed runs again, unless it is to run once ever.
func TestReboot(t *testing.T) {
	l := machine(t)
	// An init container fills a volume in memory.
	l.write("fills.yaml", l.withTrace("fills", "Always", `echo "main:$(cat /m/x)" >>/t/fills; `+forever,
		"initContainers:", initLine("i", "sleep 0.3; echo init >>/t/fills; echo filled >/m/x", "")))
	// A sidecar has started up before the main container begins.
	l.write("gated.yaml", l.withTrace("gated", "Always", `echo "main:$(cat /m/up)" >>/t/gated; `+forever,
		"initContainers:",
		initLine("s", "echo side >>/t/gated; sleep 1; echo up >/m/up; "+forever,
			", restartPolicy: Always, startupProbe: {exec: {command: [test, -e, /m/up]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}"),
		initLine("i", "echo init:$(cat /m/up) >>/t/gated", "")))
	l.write("job.yaml", l.withTrace("job", "Never", "echo ran >>/t/job; exit 3"))
	l.write("ever.yaml", strings.Replace(l.withTrace("ever", "OnFailure", "echo ran >>/t/ever"),
		"metadata:\n", "metadata:\n  annotations: {podrun.io/run-policy: once-ever}\n", 1))
	// One is cut off within its deadline, the other had passed it.
	l.write("cut.yaml", l.withTrace("cut", "Never", "echo ran >>/t/cut; "+forever, "activeDeadlineSeconds: 120"))
	l.write("late.yaml", l.withTrace("late", "Never", "echo ran >>/t/late; "+forever, "activeDeadlineSeconds: 3"))
	l.serve()
	fills := l.ready("fills-n")
	l.ready("gated-n")
	l.ready("cut-n")
	l.awaitPod("job-n", "to have failed", phase(v1.PodFailed, ""))
	l.awaitPod("ever-n", "to have succeeded", phase(v1.PodSucceeded, ""))
	l.awaitPod("late-n", "to have passed its deadline", phase(v1.PodFailed, "DeadlineExceeded"))

	l.reboot(func() {})
	l.serve()
	l.awaitTrace("fills", "init main:filled init main:filled")
	l.awaitTrace("gated", "side init:up main:up side init:up main:up")
	l.awaitTrace("job", "ran ran")
	l.awaitTrace("cut", "ran ran")
	l.awaitTrace("late", "ran ran")
	again := l.ready("fills-n")
	if s := again.Status.ContainerStatuses[0]; s.RestartCount != 1 || s.LastTerminationState.Terminated == nil ||
		again.UID != fills.UID || s.ContainerID == fills.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("after the reboot: %s, before: %s", asJSON(again.Status), asJSON(fills.Status))
	}
	l.ready("gated-n")
	l.awaitPod("job-n", "to have failed again", phase(v1.PodFailed, ""))
	l.awaitPod("late-n", "to have passed its deadline again", phase(v1.PodFailed, "DeadlineExceeded"))
	if err := isReady(l.pod("cut-n")); err != nil {
		t.Errorf("its deadline counts from its new start: %v", err)
	}
	if p := l.pod("ever-n"); l.traced("ever") != "ran" || p.Status.Phase != v1.PodSucceeded {
		t.Errorf("what is to run once ever ran %q: %s", l.traced("ever"), asJSON(p.Status))
	}
	// A second one, while podrun is killed before it has begun with anything.
	l.reboot(func() { l.remove("late.yaml") })
	l.serve()
	l.endServe(syscall.SIGKILL)
	l.serve()
	l.awaitTrace("fills", "init main:filled init main:filled init main:filled")
	l.awaitTrace("gated", "side init:up main:up side init:up main:up side init:up main:up")
	l.gone("late-n")
	if got := l.ready("fills-n").Status.ContainerStatuses[0].RestartCount; got != 2 {
		t.Errorf("restart count %d, want 2", got)
	}
}

// TestRebootWithALevel: a pod that the level of --pod-security refuses, and that ran before it was set, keeps running, and
// does not start again after a reboot; nor does a job that had completed, nor a pod whose image was missing until then.
func TestRebootWithALevel(t *testing.T) {
	l := machine(t)
	l.write("web.yaml", l.withTrace("web", "Always", "echo ran >>/t/web; "+forever))
	l.write("job.yaml", l.withTrace("job", "Never", "echo ran >>/t/job"))
	late := inContainer(l.withTrace("late", "Always", "echo ran >>/t/late; "+forever), "imagePullPolicy: Never")
	l.write("late.yaml", strings.Replace(late, box, "podrun.example/late:1", 1))
	l.write("good.yaml", manifest("good", "Always", forever))
	l.serve()
	l.ready("web-n")
	l.ready("good-n")
	l.awaitPod("job-n", "to have succeeded", phase(v1.PodSucceeded, ""))
	l.awaitPod("late-n", "to wait for its image", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].State.Waiting == nil || s[0].State.Waiting.Reason != "ErrImageNeverPull" {
			return errors.New(asJSON(p.Status))
		}
		return nil
	})
	l.endServe(syscall.SIGTERM)
	image, err := testimage.Busybox(l.dir, "podrun.example/late:1")
	must(t, err)
	l.ok("images", "load", image)
	l.serve("--pod-security=baseline")
	l.awaitPod("late-n", "to be refused", phase(v1.PodPending, "PodSecurity"))
	if p := l.pod("web-n"); isReady(p) != nil {
		t.Errorf("it does not keep running: %s", asJSON(p.Status))
	}
	l.reboot(func() {})
	l.serve("--pod-security=baseline")
	l.ready("good-n")
	l.awaitPod("web-n", "to be refused", func(p *v1.Pod) error {
		if p.Status.Reason != "PodSecurity" || !strings.Contains(p.Status.Message, "hostPath") {
			return errors.New(asJSON(p.Status))
		}
		return nil
	})
	for pod, want := range map[string]string{"web": "ran", "job": "ran", "late": ""} {
		if got := l.traced(pod); got != want {
			t.Errorf("%s wrote %q, want %q", pod, got, want)
		}
	}
}

// cniPlugin is a CNI plugin that connects nothing and is content with anything.
const cniPlugin = `#!/bin/sh
echo $CNI_COMMAND >>LOG
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'$CNI_NETNS'"}],"ips":[{"address":"10.97.216.2/24","interface":0}]}' ;;
esac
`

// TestRebootWithoutCNIPlugins: after a reboot CNI's plugins and their configuration are gone. Pods that they had
// connected start with podrun's own network, and those that are not wanted any more go.
func TestRebootWithoutCNIPlugins(t *testing.T) {
	l := machine(t)
	plugin, list := l.path("plugins", "mine"), l.path("net.d", "10-mine.conflist")
	must(t, errors.Join(os.Mkdir(l.path("plugins"), 0o755), os.Mkdir(l.path("net.d"), 0o755)))
	must(t, os.WriteFile(plugin, []byte(strings.ReplaceAll(cniPlugin, "LOG", l.path("plugins.log"))), 0o755))
	must(t, os.WriteFile(list, []byte(`{"cniVersion":"1.0.0","name":"mine","plugins":[{"type":"mine"}]}`), 0o644))
	flags := []string{"--cni-conf-dir=" + l.path("net.d"), "--cni-bin-dir=" + l.path("plugins")}
	for _, name := range []string{"stays", "goes", "follows"} {
		l.write(name+".yaml", manifest(name, "Always", forever))
	}
	l.serve(flags...)
	for _, name := range []string{"stays-n", "goes-n", "follows-n"} {
		if p := l.ready(name); p.Status.PodIP != "10.97.216.2" {
			t.Fatalf("%s has address %s", name, p.Status.PodIP)
		}
	}
	l.reboot(func() {
		must(t, errors.Join(os.Remove(plugin), os.Remove(list)))
		l.remove("goes.yaml")
	})
	l.serve(flags...)
	for _, name := range []string{"stays-n", "follows-n"} {
		l.awaitPod(name, "to be ready on podrun's own network", func(p *v1.Pod) error {
			if p.Status.PodIP == "" || p.Status.PodIP == "10.97.216.2" {
				return errors.New(asJSON(p.Status))
			}
			return isReady(p)
		})
	}
	l.gone("goes-n")
	l.remove("follows.yaml")
	l.gone("follows-n")

	// The configuration alone is back: what starts anew waits, says for what, and can be removed.
	l.reboot(func() {
		must(t, os.WriteFile(list, []byte(`{"cniVersion":"1.0.0","name":"mine","plugins":[{"type":"mine"}]}`), 0o644))
	})
	l.serve(flags...)
	l.await("stays to wait for the plugin", func() error {
		if got := l.run("describe", "pod", "stays"); !strings.Contains(got.stdout, `"mine"`) || !strings.Contains(got.stdout, "plugin") {
			return errors.New(got.String())
		}
		return nil
	})
	must(t, os.WriteFile(plugin, []byte(strings.ReplaceAll(cniPlugin, "LOG", l.path("plugins.log"))), 0o755))
	if p := l.ready("stays-n"); p.Status.PodIP != "10.97.216.2" {
		t.Errorf("with the plugin again: %s", asJSON(p.Status))
	}
}
