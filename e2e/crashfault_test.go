package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testcontainerd"
)

// strike does the round's fault.
func (r *round) strike() {
	r.t.Helper()
	switch r.fault {
	case "podrun":
		r.killPodrun()
	case "once":
		r.killOnce()
	case "containerd":
		r.killContainerd()
	case "both":
		// A containerd that is not podrun's own must be back before serve begins, else that ends with exit code 3.
		first, second := r.killPodrun, r.killContainerd
		if r.server != nil {
			first, second = second, first
		}
		first()
		second()
	case "shim":
		r.killShim()
	case "process":
		r.killProcess("")
	case "first process":
		r.killFirstProcess()
	case "container removed":
		r.removeContainer()
	case "namespace unmounted":
		r.unmount()
	case "sandboxes removed":
		dir := r.path("run", "sandboxes")
		// The pins are mounts within a mount.
		r.untilGone(fmt.Sprintf("umount -l %[1]s/*/* 2>/dev/null; umount -l %[1]s 2>/dev/null", dir), fmt.Sprintf("rm -rf %s/*", dir))
	case "run directory removed":
		if r.serving != nil {
			r.said("serving HTTP") // before that it would end: it has nowhere to listen
		}
		r.killOnce()
		if r.dice.IntN(2) == 0 {
			r.killPodrun()
		}
		dir := r.path("run")
		r.untilGone(fmt.Sprintf("awk '$2 ~ \"^%s/\" {print $2}' /proc/mounts | sort -r | xargs -r -n1 umount -l", dir), "rm -rf "+dir)
	case "reboot":
		r.strikeAll()
		r.powerOff()
		r.powerOn()
		if r.server != nil {
			must(r.t, r.server.Restart(context.Background()))
		}
		r.start()
	}
}

// untilGone unmounts and removes until everything is removed. podrun goes on meanwhile and starts anew what it loses, so
// that each step strikes anew.
func (r *round) untilGone(unmount, remove string) {
	var err error
	for range 20 {
		r.strikeAll()
		_ = r.inside("cd /; " + unmount) // what cannot be unmounted cannot be removed
		r.strikeAll()
		if err = r.inside("cd /; " + remove); err == nil {
			return
		}
	}
	r.failf("it cannot be removed: %v", err)
}

// then adds to what mends the fault.
func (r *round) then(f func()) {
	before := r.mend
	r.mend = func() { before(); f() }
}

func (r *round) killPodrun() {
	r.endServe(syscall.SIGKILL)
	r.then(func() {
		r.pass(500)
		r.start()
	})
}

func (r *round) killContainerd() {
	if r.server != nil {
		if r.serving != nil {
			r.said("serving HTTP") // before that it would end with exit code 3
		}
		must(r.t, r.server.Kill())
		if r.phase == "start" {
			r.hit(own + "/c") // once may not have reached it yet: exit code 3
		}
		if os.Getenv("PODRUN_E2E_CONTAINERD") == testcontainerd.Debian {
			// It cannot keep the exit of what ends while it is down.
			r.hit("job-n/c")
			r.hit("try-n/c")
			r.hit(own + "/c")
		}
		r.then(func() {
			r.pass(500)
			must(r.t, r.server.Restart(context.Background()))
		})
		return
	}
	for _, pid := range r.processes() {
		if fields := strings.Fields(cmdline(pid)); len(fields) > 1 && fields[0] == setup.podrun && fields[1] == "containerd" {
			r.signal(pid)
		}
	}
}

// signal kills a process that may have ended meanwhile.
func (r *round) signal(pid int) {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		r.t.Fatal(err)
	}
}

// hit notes that a pod's container may have died.
func (r *round) hit(key string) { r.struck[key]++ }

// hitPod notes that all of a pod's containers may have died.
func (r *round) hitPod(pod string) {
	for _, c := range []string{"c", "d", "s", "i"} {
		r.hit(pod + "/" + c)
	}
}

func (r *round) strikeAll() {
	for _, pod := range []string{"web-n", "duo-n", "job-n", "try-n", own} {
		r.hitPod(pod)
	}
}

// podOf is the name of the pod that has the UID.
func podOf(pods map[string]v1.Pod, uid string) string {
	for name, p := range pods {
		if string(p.UID) == uid {
			return name
		}
	}
	return ""
}

// killShim kills a random shim, and with it its pod's containers.
func (r *round) killShim() {
	pods := r.pods()
	var shims []int
	for _, pid := range r.processes() {
		if line := cmdline(pid); strings.Contains(line, "containerd-shim") && strings.Contains(line, " -id ") && !strings.HasSuffix(line, " start ") {
			shims = append(shims, pid)
		}
	}
	if len(shims) == 0 {
		return
	}
	shim := shims[r.dice.IntN(len(shims))]
	// Its containers' pod; one that is not known yet may be any.
	uid := ""
	for _, i := range r.instances() {
		if slices.Contains(children(shim), i.pid) {
			uid = i.uid
		}
	}
	if pod := podOf(pods, uid); pod != "" {
		r.hitPod(pod)
	} else {
		r.strikeAll()
	}
	r.signal(shim)
}

// killProcess kills a container's first process: that of key, or a random one.
func (r *round) killProcess(key string) {
	pods := r.pods()
	var all []instance
	names := map[int]string{}
	for _, i := range r.instances() {
		pod := podOf(pods, i.uid)
		for _, c := range slices.Concat(pods[pod].Status.InitContainerStatuses, pods[pod].Status.ContainerStatuses) {
			if strings.HasSuffix(c.ContainerID, i.id) && c.State.Running != nil {
				names[i.pid] = pod + "/" + c.Name
			}
		}
		if names[i.pid] != "" && (key == "" || names[i.pid] == key) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return
	}
	victim := all[r.dice.IntN(len(all))]
	r.hit(names[victim.pid])
	r.sure[names[victim.pid]] = true
	r.signal(victim.pid)
}

// killFirstProcess kills the first process of the namespace that a pod's containers share, and with it them all.
func (r *round) killFirstProcess() {
	duo := r.pods()["duo-n"]
	for _, pid := range pids() {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		_, rest, _ := strings.Cut(string(groups), "/pod")
		if uid, _, _ := strings.Cut(rest, "/"); r.uids[uid] && strings.Contains(rest, "/"+pauseGroup) {
			r.hitPod("duo-n")
			for _, c := range lasting(&duo) {
				r.sure["duo-n/"+c.Name] = c.State.Running != nil
			}
			r.signal(pid)
			return
		}
	}
}

// removeContainer removes a random container with containerd's own interface. One that has just ended is left
// alone: nobody could know how.
func (r *round) removeContainer() {
	pods := r.pods()
	err := r.ask(func(ctx context.Context, c *client.Client) error {
		found, err := c.Containers(ctx)
		if err != nil || len(found) == 0 {
			return err
		}
		victim := found[r.dice.IntN(len(found))]
		labels, err := victim.Labels(ctx)
		if err != nil {
			return err
		}
		key := labels["io.kubernetes.pod.name"] + "/" + labels["io.kubernetes.container.name"]
		status := pods[labels["io.kubernetes.pod.name"]].Status
		// The status may be older than the container.
		if !slices.ContainsFunc(slices.Concat(status.InitContainerStatuses, status.ContainerStatuses), func(s v1.ContainerStatus) bool {
			return s.Name == labels["io.kubernetes.container.name"] && s.State.Terminated != nil
		}) {
			r.hit(key)
		}
		r.t.Logf("removing %s attempt %s", key, labels["podrun.io/attempt"])
		if task, err := victim.Task(ctx, nil); err == nil {
			if _, err := task.Delete(ctx, client.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
				return err
			}
		}
		return victim.Delete(ctx, client.WithSnapshotCleanup)
	})
	if err != nil && !errdefs.IsNotFound(err) {
		r.t.Logf("removing a container: %v", err)
	}
}

// unmount unmounts a random pinned namespace.
func (r *round) unmount() {
	pins, err := filepath.Glob(fmt.Sprintf("/proc/%d/root%s/*/*", r.init, r.path("run", "sandboxes")))
	must(r.t, err)
	pins = slices.DeleteFunc(pins, func(path string) bool { return strings.HasSuffix(path, ".json") || strings.HasSuffix(path, ".tmp") })
	if len(pins) == 0 {
		return
	}
	pin := strings.TrimPrefix(pins[r.dice.IntN(len(pins))], fmt.Sprintf("/proc/%d/root", r.init))
	id := filepath.Base(filepath.Dir(pin))
	pod := r.podOfSandbox(id)
	if pod == "" {
		r.strikeAll() // half made
	} else {
		r.hitPod(pod)
	}
	if err := r.inside("umount -l " + pin); err != nil {
		r.t.Logf("unmounting: %v", err) // it may just be going
	}
}

// podOfSandbox is the name of the pod whose checkpoint names the sandbox; "" if none does.
func (r *round) podOfSandbox(id string) string {
	checkpoints, err := filepath.Glob(r.path("root", "pods", "*", "checkpoint.json"))
	must(r.t, err)
	for _, file := range checkpoints {
		text, _ := os.ReadFile(file) // it may just be going
		var kept struct {
			Pod       v1.Pod
			Sandboxes []struct{ ID string }
		}
		_ = json.Unmarshal(text, &kept)
		for _, s := range kept.Sandboxes {
			if s.ID == id {
				return kept.Pod.Name
			}
		}
	}
	return ""
}
