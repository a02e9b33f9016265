package claims

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/treetest"
	"podrun.io/podrun/internal/test"
)

// TestClaimsBehindLinks: a disk that is mounted on the directory of claims brings links in the place of namespaces. They
// are not listed, and nothing is removed through them: neither the machine's, nor a claim that has another name too.
func TestClaimsBehindLinks(t *testing.T) {
	t.Parallel()
	dirs, outside := layout.Dirs{Root: t.TempDir()}, t.TempDir()
	of := func(namespace string) pod.Key { return pod.Key{Namespace: namespace, Name: "keep"} }
	files := []string{outside + "/keep/file", outside + "/.going-keep/file", dirs.Claim("default", "keep") + "/file"}
	for _, file := range files {
		test.Must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)))
	}
	for namespace, target := range map[string]string{"usb": outside, "other": "default"} {
		test.Must(t, os.Symlink(target, filepath.Join(dirs.Claims(), namespace)))
		if _, err := Remove(t.Context(), dirs, of(namespace), nil); err == nil || errors.Is(err, ErrNoVolume) {
			t.Errorf("%s: %v", namespace, err)
		}
	}
	for _, file := range files {
		if _, err := os.Lstat(file); err != nil {
			t.Error(err)
		}
	}
	if all, err := List(dirs, nil); err != nil || len(all) != 1 || all[0].Namespace != "default" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestRemovalOfClaimRace: the directory of the namespace is exchanged for a link while a claim in it is removed.
func TestRemovalOfClaimRace(t *testing.T) {
	t.Parallel()
	dirs, outside := layout.Dirs{Root: t.TempDir()}, t.TempDir()
	key := pod.Key{Namespace: "usb", Name: "keep"}
	space := filepath.Join(dirs.Claims(), key.Namespace)
	file := outside + "/keep/file"
	test.Must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)))
	// A second claim, so that the directory of the namespace stays.
	test.Must(t, errors.Join(os.MkdirAll(space+"/second", 0o700), os.Symlink(outside, space+"-link")))
	end := treetest.Swap(t, space, space+"-link")
	defer end()
	removed := 0
	for range 3000 {
		_ = os.Mkdir(dirs.Claim(key.Namespace, key.Name), 0o700)
		if err := removeDirectory(t.Context(), dirs, key, func() error { return nil }); err == nil {
			removed++
		}
		if _, err := os.Lstat(file); err != nil {
			t.Fatalf("what is outside is removed: %v", err)
		}
	}
	if removed == 0 {
		t.Log("nothing was removed: no race was met")
	}
}
