package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/test/testlogind"
)

// A shutdown of the machine waits until pods have ended, those of critical priority last, also by default. What a podrun
// once has left running runs on, and is not waited for.
func TestMachineShutsDown(t *testing.T) {
	if !wanted() {
		t.Skip("end-to-end tests run as root by make e2e (PODRUN_E2E=1)")
	}
	t.Run("default flags", func(t *testing.T) { machineShutsDown(t) })
	t.Run("a part for critical pods", func(t *testing.T) {
		machineShutsDown(t, "--shutdown-grace-period=16s", "--shutdown-grace-period-critical-pods=8s")
	})
}

func machineShutsDown(t *testing.T, flags ...string) {
	machine := testlogind.New(t, 20*time.Second)
	n := newNode(t)
	n.env = []string{"DBUS_SYSTEM_BUS_ADDRESS=" + machine.Address}
	const obeys = `trap "sleep 0.2; echo ended >/data/end; exit 0" TERM; while :; do sleep 0.01; done`
	of := func(name, more string) string {
		text := inContainer(withGrace(manifest(name, "Always", obeys), 30), "volumeMounts: [{name: data, mountPath: /data}]")
		return strings.Replace(text, "spec:\n", "spec:\n  volumes: [{name: data, hostPath: {path: "+n.dir+"/"+name+", type: DirectoryOrCreate}}]\n"+more, 1)
	}
	n.write("web.yaml", of("web", ""))
	n.write("db.yaml", of("db", "  priorityClassName: system-node-critical\n"))
	n.serve(flags...)
	if r := n.once(manifest("left", "Always", forever)); r.code != 0 {
		t.Fatal(r)
	}
	web, db := n.ready("web-n"), n.ready("db-n")
	pids := []int{n.mainPID(web, "c"), n.mainPID(db, "c")}
	lock := machine.Lock(0)
	if !lock.Held(50 * time.Millisecond) {
		t.Fatal("nobody holds the shutdown up")
	}
	began := time.Now()
	machine.Shutdown(true)
	if lock.Held(patience) {
		t.Error("the machine cannot shut down")
	}
	if took := time.Since(began); took > 14*time.Second { // less than the whole grace period
		t.Errorf("it took %v", took)
	}
	if r := n.run("exec", "left", "--", "true"); r.code != 0 {
		t.Errorf("the pod of podrun once: %v", r)
	}
	for _, pid := range pids {
		if line := cmdline(pid); line != "" {
			t.Errorf("process %d has not ended: %s", pid, line)
		}
	}
	var ends [2]time.Time
	for i, name := range []string{"web", "db"} {
		file, err := os.Stat(n.path(name, "end"))
		if err != nil {
			t.Fatalf("%s was killed: %v", name, err)
		}
		ends[i] = file.ModTime()
	}
	if !ends[0].Before(ends[1]) {
		t.Errorf("the critical pod did not end last: %v", ends)
	}
	// The machine goes on after all, and so do they.
	machine.Shutdown(false)
	for _, p := range []string{"web-n", "db-n"} {
		n.await(p+" to run again", func() error {
			now := n.pod(p)
			if now == nil || now.Status.ContainerStatuses[0].RestartCount != 1 {
				return errors.New("it does not")
			}
			return isReady(now)
		})
	}
	machine.Lock(1)
}

// TestMachineShutsDownWithDriver: a CSI driver, which ends last, has its volumes back by then. They are published again
// if the machine goes on.
func TestMachineShutsDownWithDriver(t *testing.T) {
	if !wanted() {
		t.Skip("end-to-end tests run as root by make e2e (PODRUN_E2E=1)")
	}
	machine := testlogind.New(t, 20*time.Second)
	n := newNode(t)
	n.env = []string{"DBUS_SYSTEM_BUS_ADDRESS=" + machine.Address}
	const name = "inline.csi.example.com"
	dir, program := n.path("kubelet"), plugin(t, "..", "./internal/test/testcsi/driver")
	n.write("driver.yaml", csiDriver(program, dir, name))
	n.write("a.yaml", inContainer(manifest("a", "Always", forever, "volumes: [{name: data, csi: {driver: "+name+"}}]"),
		"volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /part, subPath: part}]"))
	n.serve("--plugins", "--plugins-dir="+dir, "--shutdown-grace-period=20s", "--shutdown-grace-period-critical-pods=5s")
	n.ready("a-n")
	n.ready("driver-n")
	published := filepath.Join(dir, "plugins", name, "volumes", "*")
	if got, err := filepath.Glob(published); err != nil || len(got) != 1 {
		t.Fatalf("volumes of the driver: %q, %v", got, err)
	}
	lock := machine.Lock(0)
	machine.Shutdown(true)
	if lock.Held(patience) {
		t.Error("the machine cannot shut down")
	}
	if got, err := filepath.Glob(published); err != nil || len(got) > 0 {
		t.Errorf("the driver ended with volumes: %q, %v", got, err)
	}
	if table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(dir, "pods"))); err != nil || len(table) > 0 {
		t.Errorf("mounted: %v, %v", table, err)
	}
	machine.Shutdown(false)
	n.await("the pod to have its volume again", func() error {
		if r := n.run("exec", "a", "--", "ls", "/data/seen.json"); r.code != 0 {
			return errors.New(r.String())
		}
		return nil
	})
	machine.Lock(1)
}
