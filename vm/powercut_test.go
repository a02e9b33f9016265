package vm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test"
)

// TestPowerCut: qemu is killed while pods come, change and go, and images are loaded. What the guest had not written to
// its disk is lost. After the next boot a job that had been reported as succeeded still is, and does not run again; one
// with restartPolicy Never that had begun does not run again either; an image that had been loaded is there, and each
// is whole; the pods of the manifests run; nothing of others is left. PODRUN_VM_SEED chooses the moments,
// PODRUN_VM_ROUNDS how many there are.
func TestPowerCut(t *testing.T) {
	// containerd's data have a disk of their own: what it syncs would sync podrun's files too.
	cutPower(t, "ext4", "/var/lib/podrun/containerd")
}

// TestPowerCutOnXFS: the same on XFS, which writes names of files long before their content, and with a file that is
// synced the names of all others.
func TestPowerCutOnXFS(t *testing.T) { cutPower(t, "xfs", "/var/lib/podrun") }

// shortTime is for how long rounds begin with -short, for a slow machine; two always do. Five take less elsewhere.
const shortTime = 8 * time.Minute

// cutPower cuts the power of a machine again and again that has a file system of its own at dir.
func cutPower(t *testing.T, fs, dir string) {
	t.Helper()
	seed, n := test.Number(t, "PODRUN_VM_SEED", 1), test.Number(t, "PODRUN_VM_ROUNDS", 5)
	c := &cutting{machine: bootServing(t), dice: rand.New(rand.NewPCG(uint64(seed), 0)), done: map[string]string{}, never: map[string]bool{}}
	c.sh(fmt.Sprintf(`systemctl stop podrun; podrun down --all; cp -a /var/lib/podrun/images /root; rm -rf %[2]s; mkdir %[2]s
		mkfs.%[1]s -q /dev/vdc; echo "/dev/vdc %[2]s %[1]s defaults 0 2" >>/etc/fstab; mount %[2]s
		cp -a /root/images /var/lib/podrun; sync; systemctl start podrun`, fs, dir))
	c.loadTool()
	c.change("apply", "web-first", webPod("web-first", 0))
	c.await("the first pod", isReady("web-first"))
	end := time.Now().Add(shortTime)
	c.remark = fmt.Sprintf("%d rounds, seed %d", n, seed)
	for i := range n {
		if testing.Short() && i >= 2 && time.Now().After(end) {
			t.Logf("%d rounds: there is no time for more", i)
			break
		}
		// Four of five happen as soon as a result is reported, before the guest writes back by itself.
		switch i % 5 {
		case 0:
			c.cutAtReport(i)
		case 1:
			c.cutAtAnyTime(i)
		case 2:
			c.cutAtLoad(i)
		case 3:
			c.cutAtPull(i)
		default:
			c.cutAtBegin(i)
		}
		c.check(i)
		c.thin()
	}
}

// mostPods is how many pods a machine has: with each, a round takes longer.
const mostPods = 12

// thin removes pods if there are too many.
func (c *cutting) thin() {
	c.t.Helper()
	names := strings.Fields(c.sh("ls -t /etc/pods | sed 's/\\.yaml$//'"))
	for len(names) > mostPods {
		name := names[len(names)-1]
		names = names[:len(names)-1]
		c.change("remove", name, "")
		delete(c.done, name)
	}
}

// cutting is a machine whose power is cut again and again.
type cutting struct {
	*machine
	dice *rand.Rand
	next int // the number of the next pod
	// done has for each job that was reported as succeeded how many lines its trace had then.
	done map[string]string
	// never has the jobs that must not begin twice.
	never map[string]bool
}

// toolPod runs the image that changes.
func toolPod(name string) string {
	return strings.Replace(webPod(name, 0), box, tool, 1)
}

func webPod(name string, version int) string {
	return podOf(name, fmt.Sprintf(": %d; %s", version, forever), "terminationGracePeriodSeconds: 2")
}

// jobPod writes its line durably. It syncs no more than that, so that it does nothing for podrun's own files. Without
// the annotation a job runs once in each boot.
func jobPod(name, policy string) string {
	return onceEver(podOf(name, fmt.Sprintf("echo %[1]s >>/t/%[1]s; sync /t/%[1]s /t; exit 0", name), "restartPolicy: "+policy))
}

// change applies or removes a manifest, durably, and reports whether the machine was on until then.
func (c *cutting) change(verb, name, text string) bool {
	c.t.Helper()
	script := `mkdir -p /etc/pods; f=/etc/pods/$1.yaml; cat >"$f~"; sync "$f~"; mv "$f~" "$f"; sync /etc/pods`
	if verb == "remove" {
		script = `rm -f "/etc/pods/$1.yaml"; sync /etc/pods`
	}
	return c.attempt(text, script, name) != nil
}

// attempt runs a script, and returns nil if the power was cut meanwhile.
func (c *cutting) attempt(stdin, script string, args ...string) *reply {
	c.t.Helper()
	r, err := c.try(patience, stdin, append([]string{"sh", "-euc", script, "sh"}, args...)...)
	if err == nil && r.Code == 0 {
		return &r
	}
	select {
	case <-c.off:
		return nil
	case <-time.After(5 * time.Second):
		c.t.Fatalf("%s %s: %v %v", script, args, r, err)
		return nil
	}
}

// note notes which jobs are reported as succeeded.
func (c *cutting) note() {
	c.t.Helper()
	r := c.attempt("", `podrun get pods -o json; echo; echo ====; cd /trace; wc -l job-* 2>/dev/null || :`)
	if r == nil {
		return
	}
	text, counts, _ := strings.Cut(string(r.Stdout), "\n====\n")
	lines := map[string]string{}
	for line := range strings.Lines(counts) {
		if f := strings.Fields(line); len(f) == 2 {
			lines[f[1]] = f[0]
		}
	}
	for _, p := range podsOf(c.t, text) {
		if name := p.Labels["job"]; name != "" && p.Status.Phase == v1.PodSucceeded && c.done[name] == "" {
			c.done[name] = lines[name]
		}
	}
}

func podsOf(t *testing.T, text string) []v1.Pod {
	t.Helper()
	var all v1.PodList
	must(t, json.Unmarshal([]byte(text), &all))
	for i := range all.Items {
		p := &all.Items[i]
		if name, _, _ := strings.Cut(p.Name, "-podrun-vm"); strings.HasPrefix(name, "job-") {
			p.Labels = map[string]string{"job": name}
		}
	}
	return all.Items
}

// anyChange makes one change of those that may be.
func (c *cutting) anyChange() bool {
	c.t.Helper()
	c.next++
	switch c.dice.IntN(6) {
	case 0:
		return c.change("apply", "web-first", webPod("web-first", c.next))
	case 1:
		name := fmt.Sprintf("web-%d", c.next)
		return c.change("apply", name, webPod(name, 0))
	case 2:
		return c.change("remove", fmt.Sprintf("web-%d", 1+c.dice.IntN(c.next)), "")
	case 3:
		return c.loadTool()
	case 4:
		return c.change([]string{"apply", "remove"}[c.dice.IntN(2)], "tool", toolPod("tool"))
	default:
		return c.newJob() != ""
	}
}

// loadTool loads a version of the image that changes.
func (c *cutting) loadTool() bool {
	c.t.Helper()
	return c.attempt("", c.load()) != nil
}

// load is a script that loads a version of the image that changes.
func (c *cutting) load() string {
	return fmt.Sprintf("podrun images load /vm/tool-%d.tar", c.dice.IntN(2))
}

// newJob makes a job, and returns its name, or nothing if the power was cut.
func (c *cutting) newJob() string {
	c.t.Helper()
	c.next++
	name, policy := fmt.Sprintf("job-%d", c.next), []string{"OnFailure", "Never"}[c.dice.IntN(2)]
	c.never[name] = policy == "Never"
	if !c.change("apply", name, jobPod(name, policy)) {
		return ""
	}
	return name
}

// cutAtReport cuts the power when a job's success has just been reported.
func (c *cutting) cutAtReport(cut int) {
	c.t.Helper()
	c.anyChange()
	c.note()
	job := c.newJob()
	c.cutAfter("podrun wait " + job + " --for=jsonpath='{.status.phase}'=Succeeded --timeout=90s")
	c.done[job] = "1"
	c.t.Logf("cut %d: as soon as %s was reported", cut, job)
}

// cutAfter boots the machine again at the moment at which the script has succeeded, without writing what is not written.
// The machine does so itself: until a message were here, containerd might have synced the file system for reasons of
// its own.
func (c *cutting) cutAfter(script string) {
	c.t.Helper()
	go func() {
		_, _ = c.try(patience, "", "sh", "-euc", script+"; echo b >/proc/sysrq-trigger; sleep 60")
	}()
	c.awaitBoot()
}

// cutAtLoad cuts the power when an image has just been loaded.
func (c *cutting) cutAtLoad(cut int) {
	c.t.Helper()
	c.anyChange()
	c.cutAfter(c.load())
	c.t.Logf("cut %d: as soon as an image was loaded", cut)
	if got := c.sh("podrun images list"); !strings.Contains(got, "podrun.example/tool") {
		c.t.Errorf("cut %d: the image that was loaded is not there: %s", cut, got)
	}
}

// cutAtPull cuts the power when an image has just been pulled. There is no registry any more then.
func (c *cutting) cutAtPull(cut int) {
	c.t.Helper()
	c.anyChange()
	c.cutAfter(fetching(cut, "podrun images pull "+fetched(cut)))
	c.t.Logf("cut %d: as soon as an image was pulled", cut)
	p := strings.Replace(webPod("fetched", cut), "image: "+box, "imagePullPolicy: Never\n    image: "+fetched(cut), 1)
	if !strings.Contains(p, fetched(cut)) {
		c.t.Fatalf("not the pod's image: %s", p)
	}
	c.change("apply", "fetched", p)
	c.await("the image that was pulled", isReady("fetched"))
	c.sh(`podrun exec fetched -- sh -c '[ "$(sha256sum </data)" = "$(cat /sum)" ]'`)
}

// cutAtBegin cuts the power when a job that never begins twice has begun, and nothing says so but its own trace.
func (c *cutting) cutAtBegin(cut int) {
	c.t.Helper()
	c.anyChange()
	c.next++
	name := fmt.Sprintf("job-%d", c.next)
	c.never[name] = true
	c.change("apply", name, onceEver(podOf(name, fmt.Sprintf("echo %[1]s >>/t/%[1]s; sync /t/%[1]s /t; "+forever, name), "restartPolicy: Never")))
	c.cutAfter(fmt.Sprintf("until [ -s /trace/%s ]; do sleep 0.01; done; sync /trace/%[1]s /trace", name))
	c.t.Logf("cut %d: as soon as %s had begun", cut, name)
	c.await("what had begun to have failed", "podrun wait "+name+" --for=jsonpath='{.status.phase}'=Failed --timeout=30s")
	if lines := c.lines(name); lines != 1 {
		c.t.Errorf("cut %d: %s, which is never started again, ran %d times", cut, name, lines)
	}
}

// cutAtAnyTime cuts the power at a moment that depends on nothing.
func (c *cutting) cutAtAnyTime(cut int) {
	c.t.Helper()
	after := 2*time.Second + time.Duration(c.dice.Int64N(int64(25*time.Second)))
	qemu := c.qemu.Process
	timer := time.AfterFunc(after, func() { _ = qemu.Kill() })
	defer timer.Stop()
	for c.anyChange() {
		c.note()
	}
	c.cutPower()
	c.t.Logf("cut %d: after %.1f s", cut, after.Seconds())
	c.start()
}

// checkJob waits until the job has succeeded. If it must not begin twice and had not been reported, it may also have
// begun before the power was cut: then what became of it is unknown.
func (c *cutting) checkJob(cut int, name string) {
	c.t.Helper()
	ended := "podrun wait " + name + " --for=jsonpath='{.status.phase}'=%s --timeout=%s"
	script := fmt.Sprintf(ended, v1.PodSucceeded, "30s")
	if c.never[name] && c.done[name] == "" {
		script = fmt.Sprintf(ended, v1.PodFailed, "1s") + " || " + script
	}
	c.await(name, script)
	if !c.never[name] {
		return
	}
	if lines := c.sh("cat /trace/" + name + " 2>/dev/null | wc -l"); lines != "0" && lines != "1" {
		c.t.Errorf("cut %d: %s, which is never started again, ran %s times", cut, name, lines)
	}
	for _, p := range podsOf(c.t, c.sh("podrun get pods -o json")) {
		if p.Labels["job"] == name && p.Status.Phase == v1.PodFailed {
			if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.Reason != "ContainerStatusUnknown" {
				c.t.Errorf("cut %d: %s: %+v", cut, name, p.Status)
			}
			c.t.Logf("cut %d: %s had begun", cut, name)
		}
	}
}

// check checks what there is after a boot.
func (c *cutting) check(cut int) {
	c.t.Helper()
	c.await("podrun", "systemctl is-active podrun")
	if got := c.sh("systemctl show -P NRestarts podrun"); got != "0" {
		c.t.Errorf("cut %d: podrun was restarted %s times", cut, got)
	}
	// It was loaded before the first cut, and was not removed since.
	if r := c.run("sh", "-c", "podrun images list | grep -q podrun.example/tool"); r.Code != 0 {
		c.t.Errorf("cut %d: the image that changes is not there", cut)
		c.loadTool()
	}
	c.change("apply", "tool", toolPod("tool"))
	names := strings.Fields(c.sh(`cd /etc/pods; rm -f *~; ls | sed 's/\.yaml$//'`))
	for _, name := range names {
		if strings.HasPrefix(name, "job-") {
			c.checkJob(cut, name)
		} else {
			c.await(name, isReady(name))
		}
	}
	c.sh(`podrun exec tool -- sh -c '[ "$(sha256sum </data)" = "$(cat /sum)" ]'`)
	for job, lines := range c.done {
		if got := c.sh("wc -l </trace/" + job); got != lines {
			c.t.Errorf("cut %d: %s had been reported as succeeded and ran again: %s lines, had %s", cut, job, got, lines)
		}
	}
	c.noOthers(names)
	if got := c.sh(`journalctl -b -u podrun -o cat --no-pager | grep -e "cannot be read" -e damaged || :`); got != "" {
		c.t.Errorf("cut %d: %s", cut, got)
	}
	c.t.Logf("cut %d: %v; reported: %v", cut, names, c.done)
}

// noOthers waits until there are the pods of these manifests, and nothing of others.
func (c *cutting) noOthers(names []string) {
	c.t.Helper()
	slices.Sort(names)
	c.await("the pods of the manifests and no others", fmt.Sprintf(
		`got=$(podrun get pods -o name | sed 's#.*/##; s#-podrun-vm.*##' | LC_ALL=C sort | xargs); echo "$got"; [ "$got" = %q ]`,
		strings.Join(names, " ")))
	// What is left of a pod has its UID in its name or in its labels.
	uids := c.sh(`podrun get pods -o jsonpath='{range .items[*]}{.metadata.uid}{" "}{end}'`)
	if got := len(strings.Fields(uids)); got != len(names) {
		c.t.Errorf("%d UIDs of %d pods: %s", got, len(names), uids)
	}
	c.await("nothing of others to be left", fmt.Sprintf(`left=$( { ls -d /var/lib/podrun/pods/* /var/log/pods/*
		find /sys/fs/cgroup -type d -regex '.*pod[0-9a-f]+'; } | grep -v -e %s || :); echo "$left"; [ -z "$left" ]`,
		strings.Join(strings.Fields(uids), " -e ")))
}
