package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/runtime/fake"
)

// rolling is a Deployment that is updated pod by pod.
func rolling(replicas int, image, strategy string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  minReadySeconds: 10
  strategy: {%s}
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      terminationGracePeriodSeconds: 5
      containers: [{name: c, image: '%s', ports: PORTS}]
`, replicas, strategy, image)
}

func rollingTest(t *testing.T, f func(s *served, rt *fake.Runtime)) {
	rollbackTest(t, func(s *served, rt *fake.Runtime) {
		s.o.Sources.FileCheckFrequency = time.Second
		f(s, rt)
	})
}

func withoutPorts(text string) string { return strings.ReplaceAll(text, "PORTS", "[]") }

// TestRollingUpdate: another pod serves before one is replaced, as the strategy says.
func TestRollingUpdate(t *testing.T) {
	rollingTest(t, func(s *served, _ *fake.Runtime) {
		put := func(replicas int, image, strategy string) { s.put(withoutPorts(rolling(replicas, image, strategy))) }
		put(1, "v:1", "")
		s.start()
		s.show(time.Minute, "web-0=v:1*")
		put(1, "v:2", "")
		s.show(8*time.Second, "web-0=v:1* web-1=v:2*") // the new one is not available yet
		s.show(9*time.Second, "web-0=v:2* web-1=v:2*") // the replica is replaced
		s.show(20*time.Second, "web-0=v:2*")
		put(3, "v:2", "")
		s.show(time.Minute, "web-0=v:2* web-1=v:2* web-2=v:2*")
		put(3, "v:3", "rollingUpdate: {maxSurge: 0, maxUnavailable: 1}")
		s.show(8*time.Second, "web-0=v:3* web-1=v:2* web-2=v:2*")
		s.show(10*time.Second, "web-0=v:3* web-1=v:3* web-2=v:2*")
		s.show(20*time.Second, "web-0=v:3* web-1=v:3* web-2=v:3*")
		put(3, "v:1", "type: Recreate")
		s.show(8*time.Second, "web-0=v:1* web-1=v:1* web-2=v:1*")
		put(1, "v:1", "")
		s.show(20*time.Second, "web-0=v:1*")
		put(1, "bad:1", "") // it never is available
		s.show(5*time.Minute, "web-0=v:1* web-1=bad:1")
		put(1, "v:1", "")
		s.show(20*time.Second, "web-0=v:1*")
		put(0, "v:2", "")
		s.show(20*time.Second, "")
	})
}

// TestRollingUpdateGoesOn: what happens to podrun, to a manifest or to the machine meanwhile does not take the pods
// that serve away.
func TestRollingUpdateGoesOn(t *testing.T) {
	rollingTest(t, func(s *served, rt *fake.Runtime) {
		put := func(image string) { s.put(withoutPorts(rolling(1, image, ""))) }
		put("v:1")
		s.start()
		s.show(time.Minute, "web-0=v:1*")
		put("v:2")
		s.show(8*time.Second, "web-0=v:1* web-1=v:2*")
		s.stop() // podrun, not its pods
		s.start()
		s.show(8*time.Second, "web-0=v:1* web-1=v:2*") // what it could not do meanwhile does not count
		s.show(30*time.Second, "web-0=v:2*")
		s.stop()
		put("v:3") // while podrun does not run
		s.start()
		s.show(8*time.Second, "web-0=v:2* web-1=v:3*")
		put("v:1") // another edit: what was beyond the replicas follows it
		s.show(8*time.Second, "web-0=v:2* web-1=v:1*")
		s.put("kind: [") // the last good content counts
		s.show(40*time.Second, "web-0=v:1*")
	})
}

// TestRollingUpdateAlone: what cannot run twice ends before the next one starts.
func TestRollingUpdateAlone(t *testing.T) {
	for name, more := range map[string]string{
		"host network": "hostNetwork: true",
		"a claim":      "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]",
	} {
		t.Run(name, func(t *testing.T) {
			rollingTest(t, func(s *served, _ *fake.Runtime) {
				put := func(image string) {
					text := strings.ReplaceAll(rolling(1, image, ""), "PORTS", "[{containerPort: 80}]")
					s.put(text + "      " + more + "\n")
				}
				put("v:1")
				s.start()
				s.show(time.Minute, "web-0=v:1*")
				put("v:2")
				s.show(8*time.Second, "web-0=v:2*")
			})
		})
	}
}

// TestRollingUpdateOfAHostPort: the pod beyond the replicas may have the same host port.
func TestRollingUpdateOfAHostPort(t *testing.T) {
	rollingTest(t, func(s *served, _ *fake.Runtime) {
		put := func(image string) {
			s.put(strings.ReplaceAll(rolling(1, image, ""), "PORTS", "[{containerPort: 80, hostPort: 8080}]"))
		}
		put("v:1")
		s.start()
		s.show(time.Minute, "web-0=v:1*")
		put("v:2")
		s.show(8*time.Second, "web-0=v:1* web-1=v:2*")
		s.show(30*time.Second, "web-0=v:2*")
	})
}

// TestRollingUpdateOfAPod: a Pod with the annotation has another one beside it meanwhile, which goes with the manifest.
func TestRollingUpdateOfAPod(t *testing.T) {
	rollingTest(t, func(s *served, rt *fake.Runtime) {
		put := func(image string) {
			s.put(strings.Replace(rollbackPod(image, "podrun.io/update: rolling"), "mountPath: /m}]",
				"mountPath: /m}], ports: [{containerPort: 80, hostPort: 8080}]", 1))
		}
		put("v:1")
		s.start()
		s.show(time.Minute, "web=v:1*")
		put("v:2") // healthy after ten seconds, since it is rolled back if it is not
		s.show(8*time.Second, "web-1=v:2* web=v:1*")
		s.stop()
		s.start()
		s.show(8*time.Second, "web-1=v:2* web=v:1*")
		s.show(40*time.Second, "web=v:2*")
		put("bad:1")
		s.show(time.Minute, "web-1=bad:1 web=v:2*")
		s.reboot(rt)
		s.show(time.Minute, "web-1=bad:1 web=v:2*")
		s.show(3*time.Minute, "web=v:2*!")
		put("v:3")
		s.show(8*time.Second, "web-1=v:3* web=v:2*!")
		if err := os.Remove(s.file); err != nil {
			t.Error(err)
		}
		s.show(time.Minute, "")
	})
}

// TestRollingUpdateOfAStatefulSet: its pods are replaced from the last one to the first, each when the one after it is
// ready again.
func TestRollingUpdateOfAStatefulSet(t *testing.T) {
	rollingTest(t, func(s *served, _ *fake.Runtime) {
		put := func(image, strategy string) {
			text := strings.Replace(withoutPorts(rolling(3, image, strategy)), "kind: Deployment", "kind: StatefulSet", 1)
			text = strings.Replace(text, "  strategy:", "  serviceName: web\n  updateStrategy:", 1)
			s.put(text)
		}
		put("v:1", "")
		s.start()
		s.show(time.Minute, "web-0=v:1* web-1=v:1* web-2=v:1*")
		put("v:2", "")
		s.show(8*time.Second, "web-0=v:1* web-1=v:1* web-2=v:2*")
		s.show(12*time.Second, "web-0=v:1* web-1=v:2* web-2=v:2*")
		s.stop()
		s.start()
		s.show(time.Minute, "web-0=v:2* web-1=v:2* web-2=v:2*")
		put("bad:1", "") // the others go on
		s.show(5*time.Minute, "web-0=v:2* web-1=v:2* web-2=bad:1")
		put("v:3", "type: OnDelete")
		s.show(8*time.Second, "web-0=v:3* web-1=v:3* web-2=v:3*")
	})
}

// TestRollingUpdateOfADaemonSet: with maxSurge its pod has another one beside it meanwhile.
func TestRollingUpdateOfADaemonSet(t *testing.T) {
	rollingTest(t, func(s *served, _ *fake.Runtime) {
		put := func(image, strategy string) {
			text := strings.Replace(withoutPorts(rolling(1, image, strategy)), "kind: Deployment", "kind: DaemonSet", 1)
			text = strings.Replace(text, "  strategy:", "  updateStrategy:", 1)
			s.put(strings.Replace(text, "  replicas: 1\n", "", 1))
		}
		put("v:1", "")
		s.start()
		s.show(time.Minute, "web=v:1*")
		put("v:2", "")
		s.show(8*time.Second, "web=v:2*")
		put("v:3", "rollingUpdate: {maxSurge: 1, maxUnavailable: 0}")
		s.show(8*time.Second, "web-1=v:3* web=v:2*")
		s.show(8*time.Second, "web-1=v:3* web=v:3*")
		s.show(20*time.Second, "web=v:3*")
	})
}

// TestRollingUpdateBesideAnotherPod: a pod that is defined elsewhere, and used, is none of the Deployment's; the others
// are updated one after the other all the same.
func TestRollingUpdateBesideAnotherPod(t *testing.T) {
	for name, want := range map[string][]string{
		"web-0": {"web-0=v:3* web-1=v:1* web-2=v:2*", "web-0=v:3* web-1=v:2*"},
		"web-1": {"web-0=v:1* web-1=v:3* web-2=v:2*", "web-0=v:2* web-1=v:3*"},
	} {
		t.Run(name, func(t *testing.T) {
			rollingTest(t, func(s *served, _ *fake.Runtime) {
				put := func(image string) { s.put(withoutPorts(rolling(2, image, ""))) }
				other := "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {containers: [{name: c, image: 'v:3'}]}}"
				if err := os.WriteFile(filepath.Join(filepath.Dir(s.file), "a.yaml"), []byte(other), 0o600); err != nil {
					t.Fatal(err)
				}
				put("v:1")
				s.start()
				time.Sleep(time.Minute)
				put("v:2")
				for i, d := range []time.Duration{8 * time.Second, time.Minute} {
					s.show(d, want[i])
				}
			})
		})
	}
}
