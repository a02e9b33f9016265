package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cniScript stands in for a CNI plugin. It executes what is in a file named for the command and the pod, or the sandbox.
const cniScript = `#!/bin/sh
cat >/dev/null
cd "${0%/*}" || exit 1
pod=${CNI_ARGS#*K8S_POD_NAME=}
for file in "$CNI_COMMAND-${pod%%;*}" "$CNI_COMMAND-$CNI_CONTAINERID"; do
	if [ -e "$file" ]; then echo x >>"called-$file"; . "./$file"; fi
done
if [ "$CNI_COMMAND" = ADD ]; then echo '{"cniVersion":"1.0.0","ips":[{"address":"10.97.213.7/24"}]}'; fi
`

// TestCNINeighbours: a plugin that fails or hangs for one pod, or for what is left of one, keeps no other pod from
// coming and going.
func TestCNINeighbours(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("net.d"), 0o755))
	must(t, os.Mkdir(n.path("cni"), 0o755))
	must(t, os.WriteFile(n.path("cni", "standin"), []byte(cniScript), 0o755))
	conflist := `{"cniVersion":"1.0.0","name":"mine","plugins":[{"type":"standin"}]}`
	must(t, os.WriteFile(n.path("net.d", "10-mine.conflist"), []byte(conflist), 0o644))
	on := func(call, script string) { must(t, os.WriteFile(n.path("cni", call), []byte(script), 0o644)) }
	called := func(call string) func() error {
		return func() error { _, err := os.Stat(n.path("cni", "called-"+call)); return err }
	}
	const fails = `echo '{"code":11,"msg":"refused by the stand-in"}'; exit 1`
	// What is left of a pod of which nothing else is.
	const lost = "00112233445566778899aabbccddeeff"
	record := fmt.Sprintf(`{"conflist":%s,"binDirs":[%q],"netns":"/nowhere","args":[["K8S_POD_NAME","lost"]]}`,
		conflist, n.path("cni"))
	must(t, os.MkdirAll(n.path("root", "cni"), 0o700))
	must(t, os.WriteFile(n.path("root", "cni", lost+".json"), []byte(record), 0o600))
	on("DEL-"+lost, "exec sleep 1000")
	on("DEL-fails-n", fails)
	on("DEL-hangs-n", "exec sleep 1000")

	n.serve("--cni-conf-dir="+n.path("net.d"), "--cni-bin-dir="+n.path("cni"))
	for _, name := range []string{"fails", "hangs", "good"} {
		n.write(name+".yaml", manifest(name, "Always", forever))
	}
	onHost := strings.Replace(manifest("host", "Always", forever), "spec:\n", "spec:\n  hostNetwork: true\n", 1)
	n.write("host.yaml", onHost)
	for _, name := range []string{"fails", "hangs", "good", "host"} {
		n.ready(name + "-n")
	}
	n.await("the lost sandbox to be released", called("DEL-"+lost))
	n.remove("fails.yaml")
	n.remove("hangs.yaml")
	n.await("the plugin to fail", called("DEL-fails-n"))
	n.await("the plugin to hang", called("DEL-hangs-n"))
	began := time.Now()
	n.write("late.yaml", manifest("late", "Always", forever))
	n.ready("late-n")
	for _, name := range []string{"late", "good", "host"} {
		n.remove(name + ".yaml")
		n.gone(name + "-n")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("others took %s", took)
	}
	for _, call := range []string{"DEL-fails-n", "DEL-hangs-n", "DEL-" + lost} {
		on(call, "")
	}
	n.gone("fails-n")
	n.end(syscall.SIGKILL)
	n.ok("down", "--all")
	n.await("all to be released", func() error {
		left, err := filepath.Glob(n.path("root", "cni", "*.*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		return err
	})
}
