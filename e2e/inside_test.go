package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// shell is what a line of sh in the pod's container says, without the last line end.
func (n *node) shell(pod, line string) string {
	n.t.Helper()
	return strings.TrimSuffix(n.ok("exec", pod, "--", "sh", "-c", line), "\n")
}

// says waits until a line of sh in the pod's container says what is wanted.
func (n *node) says(pod, line, want string) {
	n.t.Helper()
	n.await(fmt.Sprintf("%s in %s to say %q", line, pod, want), func() error {
		r := n.run("exec", pod, "--", "sh", "-c", line)
		if r.code != 0 || strings.TrimSuffix(r.stdout, "\n") != want {
			return errors.New(r.String())
		}
		return nil
	})
}

const settings = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: %s, web.conf: "listen 80"}
binaryData: {raw: AP8=}
`

const password = `apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: %s}
`

const configured = `apiVersion: v1
kind: Pod
metadata: {name: a, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: podrun.example/box:1
    command: [sh, -c, 'echo "$0" >/dev/shm/args; exec sleep 1d', '$(GREETING) $(NAME) $$(NAME) $(NONE) $(PASSWORD)']
    resources: {limits: {memory: 64Mi}, requests: {cpu: 250m}}
    envFrom:
    - {prefix: C_, configMapRef: {name: settings}}
    - {configMapRef: {name: nowhere, optional: true}}
    env:
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: login, key: password}}}
    - {name: LOGIN, value: me:$(PASSWORD)}
    - {name: BOTH, value: $(GREETING)-$(C_greeting)}
    - {name: C_greeting, value: mine}
    volumeMounts:
    - {name: config, mountPath: /config}
    - {name: secret, mountPath: /secret}
    - {name: all, mountPath: /all}
    - {name: info, mountPath: /info, readOnly: true}
    - {name: config, mountPath: /etc/web.conf, subPath: web.conf}
  volumes:
  - {name: config, configMap: {name: settings}}
  - {name: secret, secret: {secretName: login, defaultMode: 0400}}
  - {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - name: all
    projected:
      sources:
      - configMap: {name: settings, items: [{key: greeting, path: deep/greeting}]}
      - secret: {name: login}
      - downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
`

// waits waits until the pod's container does not run and its state says why.
func (n *node) waits(pod, reason, message string) {
	n.t.Helper()
	n.awaitPod(pod, "to wait: "+message, func(p *v1.Pod) error {
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && w.Reason == reason && strings.Contains(w.Message, message) {
				return nil
			}
		}
		return errors.New(asJSON(p.Status))
	})
}

// TestConfiguration: a pod waits for its ConfigMap and Secret, finds them inside, and follows their edits.
func TestConfiguration(t *testing.T) {
	n := newNode(t)
	const word, newWord = "tHe-wOrd-31415", "aN0ther-27182"
	n.write("a.yaml", configured)
	n.serve()
	// Its volumes are mounted first, which have them too: as under the kubelet the container is only not created yet.
	n.waits("a-n", "ContainerCreating", `configmap "settings" not found`)
	n.write("settings.yaml", fmt.Sprintf(settings, "hello"))
	n.waits("a-n", "ContainerCreating", `secret "login" not found`)
	n.write("login.yaml", fmt.Sprintf(password, word))
	p := n.ready("a-n")
	for line, want := range map[string]string{
		"cat /dev/shm/args":            "hello a-n $(NAME) $(NONE) " + word,
		"echo $LOGIN $PODRUN_WITHHELD": "me:" + word,
		`tr "\\0" "\\n" </proc/1/environ | grep -E "LOGIN|WITHHELD"`: "LOGIN=me:" + word,
		"echo $NODE $APP":                                           "n web",
		"echo $MEMORY $CPU":                                         "64 250",
		"echo $BOTH $C_greeting":                                    "hello-hello mine",
		"echo $IP":                                                  p.Status.PodIP,
		"cat /config/web.conf /etc/web.conf":                        "listen 80listen 80",
		"hexdump -e '/1 \"%02x\"' /config/raw":                      "00ff",
		"cat /secret/password; stat -Lc %a /secret/password":        word + "400",
		"stat -fc %T /secret /all /info":                            "tmpfs\ntmpfs\ntmpfs",
		"cat /all/deep/greeting /all/labels /all/password":          `helloapp="web"` + word,
		"touch /config/x /secret/x /all/x 2>&1 | grep -c Read-only": "3",
		"ls /all": "deep\nlabels\npassword",
	} {
		n.says("a", line, want) // the process writes its arguments down at some time after it is ready
	}
	if m := p.Status.ContainerStatuses[0].VolumeMounts; len(m) != 5 || m[3].Name != "info" || m[3].MountPath != "/info" || !m[3].ReadOnly {
		t.Errorf("mounts in the status: %+v", m)
	}
	pid := n.mainPID(p, "c")
	n.write("settings.yaml", fmt.Sprintf(settings, "bye"))
	n.says("a", "cat /config/greeting /all/deep/greeting; echo $GREETING", "byebyehello")
	n.write("login.yaml", fmt.Sprintf(password, newWord))
	n.says("a", "cat /secret/password /all/password", newWord+newWord)
	n.write("a.yaml", strings.Replace(configured, "app: web", "app: site", 1))
	n.says("a", "cat /all/labels /info/labels", `app="site"app="site"`)
	n.diff(0, "= keep default/a-n ")
	n.end(syscall.SIGKILL)
	n.write("login.yaml", fmt.Sprintf(password, word))
	n.diff(1, "~ update default/a-n ", ": in place\n", "    files of volume ")
	n.write("login.yaml", fmt.Sprintf(password, newWord))
	n.serve()
	// What is gone stays until it is known what to show instead.
	n.remove("settings.yaml")
	n.write("b.yaml", manifest("b", "Always", forever))
	n.ready("b-n")
	if got := n.shell("a", "cat /config/greeting"); got != "bye" {
		t.Errorf("without its ConfigMap: %q", got)
	}
	if now := n.ready("a-n"); now.UID != p.UID || n.mainPID(now, "c") != pid {
		t.Error("an edit of what a pod refers to replaced it")
	}
	for _, text := range []string{word, newWord} {
		n.nowhere(text)
	}
}

// TestLiveUpdates: each edit of a ConfigMap comes to all pods that show it, and says how soon; who reads all the
// while never sees half of one edit and half of another.
func TestLiveUpdates(t *testing.T) {
	n := newNode(t)
	configure := func(i int) {
		n.write("m.yaml", fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: v%[1]d, b: v%[1]d}\n", i))
	}
	configure(0)
	const reader = `echo begun; while :; do if cd /c/..data && a=$(cat a) && b=$(cat b) && [ "$a" != "$b" ]; then echo mix $a $b; fi 2>/dev/null; usleep 1000; done`
	names := []string{"a", "b", "c"}
	for _, name := range names {
		n.write(name+".yaml", inContainer(manifest(name, "Always", reader, "volumes: [{name: c, configMap: {name: m}}]"), "volumeMounts: [{name: c, mountPath: /c}]"))
	}
	n.serve()
	var files []string
	for _, name := range names {
		files = append(files, fmt.Sprintf("/proc/%d/root/c/b", n.mainPID(n.ready(name+"-n"), "c")))
	}
	var slowest time.Duration
	for i := 1; i <= 10; i++ {
		begin := time.Now()
		configure(i)
		for _, file := range files {
			for got := ""; got != fmt.Sprintf("v%d", i); {
				data, err := os.ReadFile(file)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				if got = string(data); time.Since(begin) > patience {
					t.Fatalf("edit %d: %s is %q", i, file, got)
				}
				time.Sleep(time.Millisecond)
			}
		}
		slowest = max(slowest, time.Since(begin))
	}
	t.Logf("from the manifest to all of %d pods: %v at most", len(names), slowest.Round(time.Millisecond))
	for _, name := range names {
		if got := n.ok("logs", name); got != "begun\n" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// nowhere looks for a text in all that the node keeps on disk, and in what it says.
func (n *node) nowhere(text string) {
	n.t.Helper()
	for _, args := range [][]string{{"describe", "pod", "a"}, {"get", "pods", "-o", "yaml"}, {"logs", "a"}} {
		if r := n.run(args...); strings.Contains(r.String(), text) {
			n.t.Errorf("podrun %s shows a Secret", strings.Join(args, " "))
		}
	}
	err := filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if path == n.manifests || strings.HasSuffix(path, "kubernetes.io~secret") || strings.HasSuffix(path, "kubernetes.io~projected") || d.Name() == "sandboxes" || d.Name() == "withheld" {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(data, []byte(text)) {
			n.t.Errorf("a Secret is in %s", path)
		}
		return err
	})
	must(n.t, err)
	if setup.server == nil {
		return
	}
	// What a containerd that is not podrun's own has of the containers: its database and their specs.
	server := filepath.Dir(setup.server.Address)
	specs, err := filepath.Glob(filepath.Join(server, "state", "io.containerd.runtime.v2.task", filepath.Base(n.dir), "*", "config.json"))
	must(n.t, err)
	if len(specs) == 0 {
		n.t.Errorf("no container's spec in %s", server)
	}
	for _, path := range append(specs, filepath.Join(server, "root", "io.containerd.metadata.v1.bolt", "meta.db")) {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || bytes.Contains(data, []byte(text)) {
			n.t.Errorf("a Secret is in %s, %v", path, err)
		}
	}
}

// TestUserInTheStatus: the status shows the user that the process was started with, also after podrun was killed, as
// the process itself sees it.
func TestUserInTheStatus(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", forever, "securityContext: {runAsUser: 7, runAsGroup: 8, supplementalGroups: [9], fsGroup: 10}"))
	n.write("b.yaml", manifest("b", "Always", forever))
	n.serve()
	for range 2 {
		user := n.ready("a-n").Status.ContainerStatuses[0].User
		if user == nil || user.Linux.UID != 7 || user.Linux.GID != 8 || !slices.Equal(user.Linux.SupplementalGroups, []int64{8, 9, 10}) {
			t.Errorf("%s", asJSON(user))
		}
		if got := n.shell("a", "id -u; id -g; id -G"); got != "7\n8\n8 9 10" {
			t.Errorf("the process is %q", got)
		}
		root := n.ready("b-n").Status.ContainerStatuses[0]
		if root.User == nil || root.User.Linux.UID != 0 || root.User.Linux.GID != 0 {
			t.Errorf("%s", asJSON(root))
		}
		n.end(syscall.SIGKILL)
		n.serve()
	}
}
