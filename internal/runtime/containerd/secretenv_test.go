package containerd_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// withSecret gives the rig's container a Secret's value, and mounts the in-memory directory for it.
func (r *rig) withSecret(t *testing.T, word string) (dir string) {
	t.Helper()
	dir = r.Dirs.Revision(r.start.Pod.UID).Withheld()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	r.start.Env = []pod.Variable{
		{Name: "PODRUN_WITHHELD", Value: filepath.Join(dir, r.start.Container.Name)},
		{Name: "WORD", Value: word, Secret: true},
		{Name: "PATH", Value: "/secret:/bin", Secret: true},
	}
	return dir
}

// in returns the output of a line of sh in the container.
func (r *rig) in(t *testing.T, id, line string) string {
	t.Helper()
	var out bytes.Buffer
	code, err := r.Exec(t.Context(), id, []string{"sh", "-c", line}, runtime.ExecIO{Stdout: &out})
	if err != nil || code != 0 {
		t.Fatalf("%s: %d, %v", line, code, err)
	}
	return out.String()
}

// names returns the names of the entries of a directory.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestWithheldOfTheFormerVersion checks that containers of the former version, which name the file
// with their Secrets, continue to run, and that further processes in them get the Secrets through
// this version's stand-in.
func TestWithheldOfTheFormerVersion(t *testing.T) {
	for kind, start := range daemontest.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			const line = "echo $WORD; echo $PODRUN_WITHHELD"
			r := newRig(t, d, "sleep 1d")
			dir := r.withSecret(t, "xyzzy")
			c := r.run(t)
			file, former := filepath.Join(dir, c.ID+".json"), filepath.Join(dir, "main")
			if got := r.in(t, c.ID, line); got != "xyzzy\n"+former+"\n" {
				t.Errorf("in a container of this version: %q", got)
			}
			if got := r.in(t, c.ID, "echo $PATH"); got != "/secret:/bin\n" {
				t.Errorf("a variable of the image's hides the Secret: %q", got)
			}
			// Now it is one of the former version's.
			standIn := r.Dirs.StandIn("")
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(former, []byte(`{"args":["sleep"],"env":["PATH=/bin","WORD=xyzzy"]}`), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(standIn); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(standIn, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got := r.in(t, c.ID, line); got != "xyzzy\n\n" {
					t.Errorf("in a container of the former version: %q", got)
				}
			}
		})
	}
}

// TestWithheldGoesWithItsContainer checks that a container that restarts again and again, or never
// starts, leaves no withheld values.
func TestWithheldGoesWithItsContainer(t *testing.T) {
	for kind, start := range daemontest.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			r := newRig(t, d, "exit 0")
			dir := r.withSecret(t, "xyzzy")
			for attempt := range 2 {
				c := r.run(t)
				r.ended(t, attempt)
				if got := names(t, dir); len(got) != 2 {
					t.Errorf("attempt %d: %q", attempt, got)
				}
				if err := r.ReapContainer(context.Background(), c.ID, ""); err != nil {
					t.Fatal(err)
				}
				if err := r.RemoveContainer(context.Background(), c.ID); err != nil {
					t.Fatal(err)
				}
				if got := names(t, dir); len(got) > 0 {
					t.Errorf("attempt %d left %q", attempt, got)
				}
			}
			r.start.Image.ID = "sha256:none"
			r.start.Image.Name = "podrun.example/none:1"
			if err := r.StartContainer(context.Background(), r.start); err == nil {
				t.Error("started without an image")
			}
			if got := names(t, dir); len(got) > 0 {
				t.Errorf("what did not start left %q", got)
			}
		})
	}
}
