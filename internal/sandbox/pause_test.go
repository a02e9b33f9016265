package sandbox

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFirstProcess: the first process of a pod's process namespace, which all of the pod's containers see, has nothing
// that they could reach by it: no rights, no open files, and a file system of its own with its program alone.
func TestFirstProcess(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	p := sharingPod(run)
	t.Cleanup(func() { endCgroup(t, p) })
	var inherited [2]int // not closed on exec, as the pipe of a caller that waits for its end
	if err := unix.Pipe(inherited[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited[0])
	defer unix.Close(inherited[1])
	made := create(t, s, p)
	process := "/proc/" + strconv.Itoa(made.Details.PausePID)
	for dir, want := range map[string]string{"/root": pauseName, "/fd": ""} {
		if got, err := names(process + dir); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v, want %q", dir, got, err, want)
		}
	}
	mounts, err := os.ReadFile(process + "/mounts")
	if err != nil || strings.Count(string(mounts), "\n") != 1 || !strings.HasPrefix(string(mounts), "pause / tmpfs ro,") {
		t.Errorf("its mounts: %q, %v", mounts, err)
	}
	status, err := os.ReadFile(process + "/status")
	if err != nil {
		t.Fatal(err)
	}
	const none, user = "0000000000000000", "65535 65535 65535 65535"
	got := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		got[name] = strings.Join(strings.Fields(value), " ")
	}
	for name, want := range map[string]string{
		"Uid": user, "Gid": user, "Groups": "", "NoNewPrivs": "1",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	remove(t, s, made)
	bare(t, run, n)
}
