package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestJournal: what serve writes to the journal has priorities and no times; a container's environment does not name
// the journal.
func TestJournal(t *testing.T) {
	n := newNode(t)
	info, err := n.log.Stat()
	must(t, err)
	st := info.Sys().(*syscall.Stat_t)
	n.write("a.yaml", manifest("a", "Always", forever))
	n.write("b.yaml", manifest("b", "Always", forever, "volumes: [{name: v, hostPath: {path: /none, type: Directory}}]")+
		"    volumeMounts: [{name: v, mountPath: /v}]\n")
	n.serveWith([]string{fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino)})
	n.ready("a-n")
	n.waits("b-n", "ContainerCreating", "/none does not exist")
	if got := n.shell("a", "env | grep -c JOURNAL || true"); got != "0" {
		t.Errorf("a container has the journal's name: %q", got)
	}
	n.end(syscall.SIGTERM)
	text, err := os.ReadFile(n.log.Name())
	must(t, err)
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if len(line) < 4 || line[0] != '<' || line[2] != '>' || strings.Contains(line, "time=") {
			t.Errorf("%q", line)
			continue
		}
		counts[line[:3]]++
	}
	if counts["<6>"] == 0 || counts["<4>"] == 0 {
		t.Errorf("%v", counts)
	}
	n.serve()
	n.ready("a-n")
}
