package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/treetest"
	"podrun.io/podrun/internal/test"
)

// TestClaimNotLedAstray: whoever serves the file system of the claims exchanges the directory of a claim, or of its
// namespace, for a link to a directory of the machine, at any time. No container gets that, and it keeps its owner.
func TestClaimNotLedAstray(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct{ swapped, to, sub string }{
		"claim":                    {"default/data", "data", ""},
		"subPath of a claim":       {"default/data", "data", "sub"},
		"namespace":                {"default", ".", ""},
		"subPath in the namespace": {"default", ".", "sub"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			outside, at := t.TempDir(), filepath.Join(f.dirs().Claims(), c.swapped)
			write(t, outside+"/data/sub/precious", "")
			write(t, outside+"/data/precious", "")
			mkdir(t, f.root+"/claims/default/data/sub")
			test.Must(t, os.Symlink(filepath.Join(outside, c.to), at+"-link"))
			p := podWith(claimed("data"))
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
			end := treetest.Swap(t, at, at+"-link")
			in := 0
			for range 300 {
				mounts, err := f.Setup(t.Context(), p, partOf(c.sub), pod.Sandbox{})
				if err != nil {
					continue
				}
				in++
				for _, m := range mounts {
					for range 100 { // the container's runtime opens it later
						if _, err := os.Lstat(m.HostPath + "/precious"); m.ContainerPath == "/v" && err == nil {
							end()
							t.Fatalf("what is outside is mounted at %s", m.HostPath)
						}
					}
				}
				test.Must(t, f.Teardown(t.Context(), p.UID)) // so that the group is given again
			}
			end()
			if in == 0 {
				t.Log("it was never mounted: no race was met")
			}
			for _, path := range []string{outside + "/data", outside + "/data/precious", outside + "/data/sub"} {
				var st unix.Stat_t
				if err := unix.Lstat(path, &st); err != nil || st.Gid == 4242 {
					t.Errorf("%s: group %d, %v", path, st.Gid, err)
				}
			}
		})
	}
}

// TestLinkInPlaceOfANewClaim: a link of the name under which podrun makes a claim's directory is not followed, nor what
// else has the name; nor is a link in the place of the namespace's directory.
func TestLinkInPlaceOfANewClaim(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		put  func(f fixture) error
		want string
	}{
		"a link": {func(f fixture) error { return os.Symlink("../other/secret", f.root+"/claims/default/.new") }, "remove what is there"},
		"a file": {func(f fixture) error { return os.WriteFile(f.root+"/claims/default/.new", nil, 0o600) }, "remove what is there"},
		"the namespace": {func(f fixture) error {
			return errors.Join(os.Remove(f.root+"/claims/default"), os.Symlink("other", f.root+"/claims/default"))
		}, "follows no symbolic link below the directory of claims"},
	} {
		f := newFixture(t)
		secret := mkdir(t, f.root+"/claims/other/secret")
		mkdir(t, f.root+"/claims/default")
		test.Must(t, errors.Join(os.Chmod(secret, 0o700), c.put(f)))
		for _, claim := range []string{"data", "secret"} {
			_, err := f.Setup(t.Context(), podWith(claimed(claim)), mounting(mountV), pod.Sandbox{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if m := mode(t, secret); m.Perm() != 0o700 {
			t.Errorf("%s: another namespace's claim has the mode %v", name, m)
		}
		if all, err := os.ReadDir(f.root + "/claims/other"); err != nil || len(all) != 1 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

// TestClaimsMounts: a claim is bound to a path of podrun's own. What is mounted in it is there at the next start, comes
// and goes as its propagation says, and stays when the bind is removed, also after a kill.
func TestClaimsMounts(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	claims := mkdir(t, f.dirs().Claims())
	test.Must(t, unix.Mount("tmpfs", claims, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(claims, unix.MNT_DETACH) })
	test.Must(t, unix.Mount("", claims, "", unix.MS_PRIVATE, ""))
	data := mkdir(t, claims+"/default/data")
	for _, name := range []string{"private", "host", "container", "both"} {
		mkdir(t, data+"/"+name)
	}
	p := podWith(claimed("data"))
	setup := func(propagation v1.MountPropagationMode) string {
		t.Helper()
		return f.mustSetup(t, p, mounting(v1.VolumeMount{Name: "v", MountPath: "/v", MountPropagation: &propagation}))
	}
	mount := func(at string) {
		t.Helper()
		test.Must(t, unix.Mount("tmpfs", at, "tmpfs", 0, ""))
	}
	is := func(path string, want bool) {
		t.Helper()
		if on, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path)); err != nil || len(on) > 0 != want {
			t.Errorf("%s is mounted: %v, %v", path, on, err)
		}
	}
	at := setup(v1.MountPropagationNone)
	if !isBound(t, at, data) {
		t.Fatal(at)
	}
	mount(data + "/private")
	is(at+"/private", false)
	is(setup(v1.MountPropagationNone)+"/private", true)
	test.Must(t, unix.Unmount(data+"/private", 0))
	is(setup(v1.MountPropagationNone)+"/private", false)

	test.Must(t, unix.Mount("", claims, "", unix.MS_SHARED, ""))
	at = setup(v1.MountPropagationHostToContainer)
	mount(data + "/host")
	is(at+"/host", true)
	mount(at + "/container")
	is(data+"/container", false)
	former := at
	if at = setup(v1.MountPropagationBidirectional); at != data { // a restart, as after an edit
		t.Errorf("what is mounted there would be mounted twice: %s", at)
	}
	is(at+"/host", true)
	is(at+"/container", false)
	mount(at + "/both")
	is(data+"/both", true)
	is(setup(v1.MountPropagationBidirectional)+"/both", true)
	is(data+"/both", true)
	mount(at) // as a container may, on the claim itself
	is(setup(v1.MountPropagationBidirectional), true)

	f = f.with(Options{}) // podrun was killed
	test.Must(t, f.Teardown(t.Context(), p.UID))
	for path, want := range map[string]bool{former: false, data: true} {
		is(path, want)
	}
	test.Must(t, unix.Unmount(data, 0))
	is(data+"/both", true)
	is(data+"/host", true)
	test.Must(t, errors.Join(unix.Unmount(data+"/both", 0), unix.Unmount(data+"/host", 0)))
	if left := f.left(t); len(left) != 1 {
		t.Errorf("mounts: %v", left)
	}
}

// TestClaimsOfALinkedRoot: the root directory may be reached by a symbolic link. A container starts again, and its pod
// is removed.
func TestClaimsOfALinkedRoot(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	test.Must(t, os.Mkdir(f.root+"-real", 0o700))
	test.Must(t, os.Symlink(f.root+"-real", f.root))
	p := podWith(claimed("data"))
	for range 3 {
		mounts, err := f.Setup(t.Context(), p, partOf(""), pod.Sandbox{})
		test.Must(t, err)
		if !isBound(t, mounts[0].HostPath, f.root+"/claims/default/data") {
			t.Errorf("%+v", mounts[0])
		}
	}
	test.Must(t, f.Teardown(t.Context(), p.UID))
	left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(f.root + "-real"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
