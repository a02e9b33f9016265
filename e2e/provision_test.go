package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestStorageClass: a driver makes the volumes of a pod's claim and of a StatefulSet's, once, and deletes them when their
// user says so.
func TestStorageClass(t *testing.T) {
	n := newNode(t)
	const name = "made.csi.example.com"
	driver, class, spec, asking := provisioner(t, n, name)
	dir := n.path("kubelet")
	state := filepath.Join(dir, "plugins", name)
	set := "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: db}}\n" +
		"  volumeClaimTemplates: [{metadata: {name: files}, spec: " + spec + "}]\n  template:\n    metadata: {labels: {app: db}}\n    spec:\n" +
		"      terminationGracePeriodSeconds: 1\n      containers: [{name: c, image: " + box + ", command: [sh, -c, " + asJSON(forever) + "], " +
		"volumeMounts: [{name: files, mountPath: /files}]}]\n"
	serve := func() { n.serve("--plugins", "--plugins-dir="+dir) }
	n.write("a.yaml", asking("a"))
	serve()
	n.awaitPod("a-n", "to wait for its class", func(p *v1.Pod) error {
		if w := p.Status.ContainerStatuses[0].State.Waiting; w != nil && strings.Contains(w.Message, `names the StorageClass "fast", which no manifest has`) {
			return nil
		}
		return errors.New(asJSON(p.Status))
	})
	n.write("class.yaml", class)
	n.write("z-driver.yaml", driver)
	n.write("db.yaml", set)
	n.ready("a-n")
	n.ready("db-0-n")
	n.ready("db-1-n")
	n.write("b.yaml", asking("b"))
	n.ready("b-n")
	n.shell("a", "echo text > /data/file")
	if got := n.shell("b", "cat /data/file"); got != "text" {
		t.Errorf("the other pod sees %q", got)
	}
	if made := calls(state, "CreateVolume"); made != 3 {
		t.Errorf("%d volumes were made, want 3", made)
	}
	if got := n.ok("get", "volumes", "-o", "wide"); strings.Count(got, " "+name+" ") != 3 || strings.Count(got, " Bound ") != 3 || strings.Count(got, " fast ") != 3 {
		t.Errorf("get volumes:\n%s", got)
	}
	if r := n.run("volumes", "rm", "data"); r.code != 1 || !strings.Contains(r.stderr, "in use by pod ") {
		t.Errorf("volumes rm: %v", r)
	}
	// The ends of podrun, of the pods, and of the documents: the volume is the claim's.
	n.end(syscall.SIGKILL)
	n.remove("a.yaml")
	n.remove("b.yaml")
	serve()
	n.gone("a-n")
	n.gone("b-n")
	n.remove("class.yaml")
	n.write("c.yaml", asking("c"))
	n.ready("c-n")
	if got := n.shell("c", "cat /data/file"); got != "text" {
		t.Errorf("the next pod sees %q", got)
	}
	for _, file := range []string{"c.yaml", "db.yaml"} {
		n.remove(file)
	}
	n.gone("c-n")
	n.gone("db-1-n")
	n.gone("db-0-n")
	n.await("the volumes to be unpublished", func() error {
		if got := n.csiVolumes(); got != "" {
			return errors.New(got)
		}
		return nil
	})
	if got := n.ok("volumes", "rm", "data", "files-db-0", "files-db-1"); strings.Count(got, "removed\n") != 3 {
		t.Errorf("volumes rm: %s", got)
	}
	left, err := filepath.Glob(filepath.Join(state, "volumes", "*"))
	if kept := n.ok("get", "volumes", "--no-headers"); err != nil || len(left) > 0 || kept != "" || calls(state, "DeleteVolume") != 3 {
		t.Errorf("left: %q, %v; %s", left, err, kept)
	}
	if claims, err := filepath.Glob(n.path("root", "claims", "*", "*")); err != nil || len(claims) > 0 {
		t.Errorf("directories: %q, %v", claims, err)
	}
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
}

// provisioner returns the manifests of a driver that makes volumes and of its class, the spec of claims that have this,
// and what makes the manifest of a pod with such a claim.
func provisioner(t *testing.T, n *node, name string) (driver, class, spec string, asking func(pod string) string) {
	dir, program := n.path("kubelet"), plugin(t, "..", "./internal/test/testcsi/driver")
	driver = csiDriver(program, dir, name, "-stages")
	class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\nprovisioner: " + name + "\n"
	spec = "{accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Mi}}}"
	asking = func(name string) string {
		p := manifest(name, "Always", forever, "volumes:", "- {name: data, persistentVolumeClaim: {claimName: data}}")
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: " + spec + "\n---\n" +
			inContainer(p, "volumeMounts: [{name: data, mountPath: /data}]")
	}
	return driver, class, spec, asking
}

// TestUnfinishedRemoval: a volume is removed while its driver is down, and its pod comes back. It waits for the removal,
// which is finished by the same command, and gets a new volume.
func TestUnfinishedRemoval(t *testing.T) {
	n := newNode(t)
	const name = "late.csi.example.com"
	driver, class, _, asking := provisioner(t, n, name)
	n.write("class.yaml", class)
	n.write("z-driver.yaml", driver)
	n.write("a.yaml", asking("a"))
	n.serve("--plugins", "--plugins-dir="+n.path("kubelet"))
	n.ready("a-n")
	n.shell("a", "echo text > /data/file")
	n.remove("a.yaml")
	n.gone("a-n")
	n.await("the volume to be unpublished", func() error {
		if got := n.csiVolumes(); got != "" {
			return errors.New(got)
		}
		return nil
	})
	n.remove("z-driver.yaml")
	n.gone("driver-n")
	const advice = "run podrun volumes rm data -n default again when the driver"
	if r := n.run("volumes", "rm", "data"); r.code != 1 || !strings.Contains(r.stderr, advice) || strings.Contains(r.stderr, "rpc error") {
		t.Errorf("volumes rm: %v", r)
	}
	n.write("a.yaml", asking("a"))
	n.awaitPod("a-n", "to wait for the removal", func(p *v1.Pod) error {
		if w := p.Status.ContainerStatuses[0].State.Waiting; w != nil && strings.Contains(w.Message, advice) {
			return nil
		}
		return errors.New(asJSON(p.Status))
	})
	if got := n.ok("get", "volumes", "--no-headers"); !strings.HasPrefix(got, "data ") || !strings.Contains(got, " Deleting ") {
		t.Errorf("get volumes:\n%s", got)
	}
	n.write("z-driver.yaml", driver)
	n.ready("driver-n")
	n.await("the removal", func() error {
		if r := n.run("volumes", "rm", "data"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	n.ready("a-n")
	if got := n.shell("a", "ls /data"); got != "" {
		t.Errorf("the new volume has %q", got)
	}
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
}
