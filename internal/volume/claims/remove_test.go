package claims

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

// TestRemovalIsSynced: a removal that is repeated is synced as well.
func TestRemovalIsSynced(t *testing.T) {
	t.Parallel()
	dirs, claim := layout.Dirs{Root: t.TempDir()}, pod.Key{Namespace: "ns", Name: strings.Repeat("a", 253)} // as long as it may be
	dir := dirs.Claim(claim.Namespace, claim.Name)
	test.Must(t, os.MkdirAll(dir, 0o700))
	remove := func() error { return removeDirectory(t.Context(), dirs, claim, func() error { return nil }) }
	for range 2 {
		if err := test.WithoutSync(t, remove); !errors.Is(err, unix.EIO) {
			t.Errorf("on a disk that refuses each sync: %v", err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the volume is there: %v", err)
		}
	}
	if err := remove(); !errors.Is(err, ErrNoVolume) {
		t.Errorf("removing it again: %v", err)
	}
}

// TestRemovalBesideAnother: another command may remove the directory of the namespace, with its last volume.
func TestRemovalBesideAnother(t *testing.T) {
	t.Parallel()
	dirs, claim := layout.Dirs{Root: t.TempDir()}, pod.Key{Namespace: "ns", Name: "a"}
	dir := dirs.Claim(claim.Namespace, claim.Name)
	test.Must(t, os.MkdirAll(dir, 0o700))
	calls := 0
	if err := removeDirectory(t.Context(), dirs, claim, func() error {
		if calls++; calls == 2 { // the volume is out of the way
			return os.RemoveAll(filepath.Dir(dir))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestRemovalFromAFileSystem: the directory of the namespace is a mount, and stays.
func TestRemovalFromAFileSystem(t *testing.T) {
	t.Parallel()
	dirs, claim := layout.Dirs{Root: t.TempDir()}, pod.Key{Namespace: "ns", Name: "a"}
	dir := dirs.Claim(claim.Namespace, claim.Name)
	namespace := filepath.Dir(dir)
	test.Must(t, os.MkdirAll(namespace, 0o700))
	if err := unix.Mount("tmpfs", namespace, "tmpfs", 0, ""); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	defer func() { test.Must(t, unix.Unmount(namespace, 0)) }()
	test.Must(t, os.Mkdir(dir, 0o700))
	test.Must(t, removeDirectory(t.Context(), dirs, claim, func() error { return nil }))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the claim: %v", err)
	}
}
