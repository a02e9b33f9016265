package exec

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"podrun.io/podrun/internal/manifest"
)

const pods = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: c, image: i}]}
`

// running is a source that runs a script.
type running struct {
	t      *testing.T
	dir    string
	script string
	out    chan manifest.Snapshot
	log    strings.Builder
	stop   context.CancelFunc
	done   chan error
}

func (r *running) write(script string) {
	r.t.Helper()
	if err := os.WriteFile(r.script+".new", []byte(script), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.script+".new", r.script); err != nil {
		r.t.Fatal(err)
	}
}

func start(t *testing.T, dir, script string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, dir: dir, script: filepath.Join(dir, "script"), out: make(chan manifest.Snapshot), stop: cancel, done: make(chan error, 1)}
	r.write(script)
	s, err := New(Options{
		Command: "sh " + r.script, CheckFrequency: 10 * time.Millisecond, NodeName: "node1",
		CacheDir: filepath.Join(dir, "cache"), Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- s.Run(ctx, r.out) }()
	return r
}

func (r *running) next() manifest.Snapshot {
	r.t.Helper()
	select {
	case s := <-r.out:
		return s
	case <-time.After(30 * time.Second):
		r.t.Fatal("nothing new in 30 s")
		return manifest.Snapshot{}
	}
}

func (r *running) end() {
	r.t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Error(err)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatal("it does not end")
	}
}

func names(s manifest.Snapshot) (all string) {
	for _, p := range s.Pods {
		all += p.Name + " "
	}
	return strings.TrimSpace(all)
}

func text(s manifest.Snapshot) (all string) {
	for _, p := range s.Problems {
		all += p.Err.Error() + "\n"
	}
	return all
}

// TestGivenUIDs: a snapshot says which UIDs the manifests give.
func TestGivenUIDs(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), "echo '"+fmt.Sprintf(pods, "a, uid: mine")+"'")
	defer r.end()
	if s := r.next(); len(s.GivenUIDs) != 1 || s.GivenUIDs[0] != "mine" {
		t.Errorf("%q in %+v", s.GivenUIDs, s)
	}
}

// TestOutputIsTheManifests: the pods follow what the command prints; a failure of any kind leaves those that it printed
// last, also after podrun was started again.
func TestOutputIsTheManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir, "echo '"+fmt.Sprintf(pods, "a")+"'")
	first := r.next()
	if names(first) != "a-node1" || first.Err != nil || len(first.Problems) != 0 {
		t.Fatalf("%+v", first)
	}
	if o := manifest.OriginOf(first.Pods[0]); o.Source != "exec" || o.Path != "exec:sh "+r.script {
		t.Errorf("origin %+v", o)
	}
	for _, bad := range []struct{ script, want string }{
		{"echo no such vault >&2; exit 3", "exit status 3: no such vault"},
		{"echo '" + fmt.Sprintf(pods, "b") + "'; exit 1", "exit status 1"}, // half of the output may be missing
		{"true", "printed nothing; to stop all pods, let it print a List without items"},
		{"echo nonsense", "is not an object"},
		{"head -c 11000000 /dev/zero", "printed more than 10 MiB"},
		{"kill -9 $$", "Killed"},
	} {
		r.write(bad.script)
		s := r.next()
		if names(s) != "a-node1" || s.Err != nil || !strings.Contains(text(s), bad.want) {
			t.Errorf("%s: %s, %v, %q", bad.script, names(s), s.Err, text(s))
		}
	}
	r.end()
	again := start(t, dir, "exit 4")
	if s := again.next(); names(s) != "a-node1" || s.Pods[0].UID != first.Pods[0].UID || !s.Problems[0].Blind || !strings.Contains(text(s), "from the cache") {
		t.Errorf("after a restart: %s, %q", names(s), text(s))
	}
	again.write("echo '" + fmt.Sprintf(pods, "b") + "'")
	if s := again.next(); names(s) != "b-node1" || len(s.Problems) != 0 {
		t.Errorf("%s, %q", names(s), text(s))
	}
	again.write(`echo '{"apiVersion": "v1", "kind": "List", "items": []}'`)
	if s := again.next(); names(s) != "" || s.Err != nil {
		t.Errorf("%s, %v", names(s), s.Err)
	}
	again.end()
}

// TestFailureAtFirst: a command that never succeeded tells nothing, so that nothing is removed on its account.
func TestFailureAtFirst(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), "exit 1")
	if s := r.next(); s.Err == nil || !strings.Contains(s.Err.Error(), "exec:sh ") || s.Kind.Name != "exec" {
		t.Errorf("%+v", s)
	}
	r.end()
}

// TestEndsWithItsCommand: what the command has started ends with the source.
func TestEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir, "sleep 1000 & echo $! > "+dir+"/pid; wait")
	var pid int
	for range 1000 {
		if data, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil {
			if _, err := fmt.Sscan(string(data), &pid); err == nil {
				break
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.end()
	for range 1000 {
		if pid > 0 && syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d runs on", pid)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", " ", "a\x00b"} {
		if _, err := New(Options{Command: command}); err == nil {
			t.Errorf("%q is taken", command)
		}
	}
}
