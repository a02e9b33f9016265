package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"podrun.io/podrun/internal/pod"
)

// The files of the former version, as it wrote them: those of a pod that shares a process namespace, and of one with
// users of its own.
const (
	formerSharing = `{"namespace":"default","name":"web","uid":"{UID}","attempt":1,"owner":"serve",` +
		`"createdAt":"2026-11-22T13:09:43.915261303Z","shm":true,` +
		`"pauseCgroup":"/podrun/besteffort/pod{UID}/pause-{ID}","boot":"{BOOT}"}`
	formerSharingRecord = `{"namespace":"default","name":"web","uid":"{UID}","attempt":1,"owner":"serve",` +
		`"createdAt":"2026-11-22T13:09:43.915261303Z","shm":true,` +
		`"pauseCgroup":"/podrun/besteffort/pod{UID}/pause-{ID}","pausePID":{PID},"pauseStart":{START},` +
		`"boot":"{BOOT}","ips":["10.1.2.3"]}`
	formerUsers = `{"namespace":"default","name":"web","uid":"{UID}","attempt":2,"owner":"once",` +
		`"createdAt":"2026-11-22T13:09:43.942845109Z","shm":true,"users":{USERS},"boot":"{BOOT}"}`
	formerUsersRecord = `{"namespace":"default","name":"web","uid":"{UID}","attempt":2,"owner":"once",` +
		`"createdAt":"2026-11-22T13:09:43.942845109Z","shm":true,"users":{USERS},"boot":"{BOOT}","ips":["10.1.2.3"]}`
)

// former turns a sandbox into one that the former version made; without a record into one that it had not completed.
func former(t *testing.T, s *Store, b pod.Sandbox, intent, record string) {
	t.Helper()
	number := func(n any) string { text, _ := json.Marshal(n); return string(text) }
	fill := strings.NewReplacer("{UID}", string(b.UID), "{PID}", number(b.Details.PausePID), "{ID}", b.ID,
		"{BOOT}", b.Boot, "{START}", number(b.Details.PauseStart), "{USERS}", number(b.Details.FirstUser))
	err := errors.Join(removeFile(s.dir.file(b.ID, firstUserName)), removeFile(s.dir.file(b.ID, pauseCgroupName)),
		os.Symlink(fill.Replace(intent), s.dir.path(b.ID)+".intent"))
	if record != "" {
		err = errors.Join(err, os.WriteFile(s.dir.path(b.ID)+"/sandbox.json", []byte(fill.Replace(record)), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listLegacy returns the former version's sandboxes by ID.
func listLegacy(t *testing.T, s *Store) map[string]Legacy {
	t.Helper()
	list, err := s.Legacy()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Legacy{}
	for _, l := range list {
		out[l.Sandbox.ID] = l
	}
	return out
}

// TestLegacy: a sandbox of the former version is listed with its properties. After ForgetLegacy it
// works like one of this version, except that it keeps the name of its containers' shim.
func TestLegacy(t *testing.T) {
	needRoot(t)
	for kind, c := range map[string]struct {
		intent, record, owner, created string
		attempt                        int
	}{
		"sharing":   {formerSharing, formerSharingRecord, "serve", "2026-11-22T13:09:43.915261303Z", 1},
		"own users": {formerUsers, formerUsersRecord, "once", "2026-11-22T13:09:43.942845109Z", 2},
	} {
		t.Run(kind, func(t *testing.T) {
			run := t.TempDir()
			s, n := newStore(t, run)
			p := cutPods[kind](run)
			if p.Spec.ShareProcessNamespace != nil {
				t.Cleanup(func() { endCgroup(t, p) })
			}
			made := create(t, s, p)
			former(t, s, made, c.intent, c.record)
			half := create(t, s, testPod("half"))
			former(t, s, half, `{"namespace":"default","name":"half","uid":"{UID}","attempt":0,"owner":"serve",`+
				`"createdAt":"2026-11-22T13:09:43Z","boot":"{BOOT}"}`, "")
			mine := create(t, s, testPod("mine"))

			list := listLegacy(t, s)
			want := Legacy{Key: pod.KeyOf(p), Owner: c.owner, Sandbox: made}
			want.Sandbox.Attempt, want.Sandbox.Ready = c.attempt, false
			want.Sandbox.CreatedAt, _ = time.Parse(time.RFC3339Nano, c.created)
			want.Sandbox.Details.Group = string(p.UID) + "." + string(rune('0'+c.attempt))
			if diff := cmp.Diff(want, list[made.ID]); diff != "" || len(list) != 2 {
				t.Fatalf("%d: %s", len(list), diff)
			}
			if l := list[half.ID]; s.Ready(l.Sandbox) || l.Sandbox.Details.Complete || l.Key.Name != "half" {
				t.Errorf("%+v", l)
			}
			if taken, err := s.dir.usersInUse(); err != nil || !taken[made.Details.FirstUser] && kind == "own users" {
				t.Errorf("before: %v, %v", taken, err)
			}
			for range 2 {
				if err := s.ForgetLegacy(made.ID); err != nil {
					t.Fatal(err)
				}
			}
			if list := listLegacy(t, s); len(list) != 1 {
				t.Errorf("%+v", list)
			}
			if taken, err := s.dir.usersInUse(); err != nil || !taken[made.Details.FirstUser] && kind == "own users" {
				t.Errorf("after: %v, %v", taken, err)
			}
			adopted := want.Sandbox
			if !s.Ready(adopted) {
				t.Error("not ready")
			}
			if diff := cmp.Diff(s.Paths(made), s.Paths(adopted)); diff != "" {
				t.Error(diff)
			}
			remove(t, s, adopted)
			remove(t, s, list[half.ID].Sandbox) // its files have not been forgotten
			if list := listLegacy(t, s); len(list) != 0 {
				t.Errorf("%+v", list)
			}
			remove(t, s, mine)
			bare(t, run, n)
		})
	}
}

// TestSweepLegacy: Sweep removes the former version's sandboxes too: complete ones, ones with only
// an intent, and both after ForgetLegacy.
func TestSweepLegacy(t *testing.T) {
	needRoot(t)
	for name, forget := range map[string]bool{"forgotten": true, "not forgotten": false} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			s, n := newStore(t, run)
			p := sharingPod(run)
			t.Cleanup(func() { endCgroup(t, p) })
			made := create(t, s, p)
			former(t, s, made, formerSharing, formerSharingRecord)
			announced := pod.Sandbox{ID: newID(), UID: "u"}
			former(t, s, announced, formerUsers, "")
			if forget {
				if err := errors.Join(s.ForgetLegacy(made.ID), s.ForgetLegacy(announced.ID)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Sweep(t.Context(), func(string) bool { return false }); err != nil {
				t.Error(err)
			}
			if isPaused(made.Details) {
				t.Error("its pause process runs")
			}
			bare(t, run, n)
		})
	}
}

// TestLegacyTorn: files of the former version that a power failure damaged do not prevent other
// sandboxes from being listed.
func TestLegacyTorn(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	if list, err := s.Legacy(); err != nil || len(list) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.ForgetLegacy(newID()); err != nil {
		t.Error(err)
	}
	made := create(t, s, testPod("web"))
	former(t, s, made, formerUsers, `{"names`)
	torn := newID()
	if err := os.Symlink(`{"names`, s.dir.path(torn)+".intent"); err != nil {
		t.Fatal(err)
	}
	list, err := s.Legacy()
	if err == nil || !strings.Contains(err.Error(), torn) {
		t.Errorf("error %v", err)
	}
	if len(list) != 1 || list[0].Sandbox.ID != made.ID || list[0].Sandbox.Details.Complete {
		t.Errorf("%+v", list)
	}
	p := testPod("own")
	p.Spec.HostUsers = new(false)
	remove(t, s, create(t, s, p)) // though nobody can say which users the torn one has
	if err := s.Sweep(t.Context(), func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	bare(t, run, n)
}
