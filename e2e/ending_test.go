package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testimage"
)

// TestKilledPodrunGoesOnWithAnEnd: neither a grace period nor a probe's verdict begins anew with podrun.
func TestKilledPodrunGoesOnWithAnEnd(t *testing.T) {
	n := newNode(t)
	data := n.path("data")
	must(t, os.Mkdir(data, 0o755))
	told := func(name string) {
		n.await(name+" to be told", func() error {
			_, err := os.Stat(filepath.Join(data, name))
			return err
		})
	}
	deaf := hooked("deaf", data, `trap "echo >/data/deaf" TERM; while :; do sleep 0.02; done`, "stopSignal: SIGTERM")
	n.write("deaf.yaml", withGrace(deaf, 5))
	// It ends with 0, and has not succeeded.
	job := hooked("job", data, `trap "echo >/data/job; sleep 1; exit 0" TERM; while :; do sleep 0.02; done`, "stopSignal: SIGTERM")
	job = strings.Replace(withGrace(job, 30), "restartPolicy: Always", "restartPolicy: OnFailure", 1)
	n.write("job.yaml", inContainer(job, `livenessProbe: {exec: {command: [test, "!", -e, /data/bad]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1}`))
	n.serve()
	deafPID := n.mainPID(n.ready("deaf-n"), "c")
	p := n.ready("job-n")
	before := n.mainPID(p, "c")
	must(t, os.WriteFile(filepath.Join(data, "bad"), nil, 0o600))
	told("job")
	n.remove("deaf.yaml")
	began := time.Now()
	told("deaf")
	n.end(syscall.SIGKILL)
	must(t, os.Remove(filepath.Join(data, "bad")))
	dead := func(pid int) {
		n.await("a process to end", func() error {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				return errors.New("it runs")
			}
			return nil
		})
	}
	dead(before)
	time.Sleep(time.Until(began.Add(3 * time.Second))) // of the grace period
	n.serve()
	n.await("the next podrun to look", func() error {
		said, err := os.ReadFile(n.log.Name())
		if err == nil && strings.Count(string(said), "msg=serving") < 2 {
			err = errors.New("it does not serve yet")
		}
		return err
	})
	next := time.Now()
	dead(deafPID)
	if time.Since(began) < 5*time.Second || time.Since(next) > 5*time.Second {
		t.Errorf("dead after %s of a grace period of 5 s, %s after the next podrun has begun to look", time.Since(began), time.Since(next))
	}
	n.gone("deaf-n")
	p = n.restarted("job-n", 1)
	if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 0 || p.Status.Phase != v1.PodRunning {
		t.Errorf("the job that was told to end: %s", asJSON(p.Status))
	}
}

// TestImageWithoutASignal: an image whose STOPSIGNAL is no signal does not keep its container from being stopped.
func TestImageWithoutASignal(t *testing.T) {
	n := newNode(t)
	const hostile = "podrun.example/hostile:1"
	archive, err := testimage.Busybox(n.dir, hostile, testimage.StopSignal("SIGRTMIN+99"))
	must(t, err)
	n.ok("images", "load", archive)
	n.write("a.yaml", strings.Replace(manifest("a", "Always", `trap "exit 0" TERM; `+forever), box, hostile, 1))
	n.serve()
	n.ready("a-n")
	n.remove("a.yaml")
	n.gone("a-n")
}
