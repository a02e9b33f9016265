package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/treetest"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/volume/claims"
	"podrun.io/podrun/internal/volume/fsgroup"
)

func claimed(name string) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// isBound reports whether a directory is mounted on a path of podrun's own.
func isBound(t *testing.T, at, dir string) bool {
	t.Helper()
	is, err := os.Stat(at)
	of, failed := os.Stat(dir)
	test.Must(t, errors.Join(err, failed))
	return strings.Contains(at, "/volume-subpaths/") && os.SameFile(is, of)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestClaims(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(claimed("data"))
	mounts, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{})
	if err != nil {
		t.Fatal(err)
	}
	dir := f.root + "/claims/default/data"
	if !isBound(t, mounts[0].HostPath, dir) || mode(t, dir).Perm() != 0o777 {
		t.Errorf("%+v, %v", mounts[0], mode(t, dir))
	}
	write(t, dir+"/file", "kept")
	precious := filepath.Join(t.TempDir(), "precious")
	write(t, precious+"/file", "mine")
	if err := os.Symlink(precious, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil {
		t.Error(err)
	}
	const uses = `{"pod":{"metadata":{"name":"web-node1","namespace":"default"},"spec":{"containers":null,"volumes":[
		{"name":"v","persistentVolumeClaim":{"claimName":"data"}},
		{"name":"w","persistentVolumeClaim":{"claimName":"data","readOnly":true}}]}}}`
	for _, file := range []string{"checkpoint.json", "pod.json"} { // pod.json: of a pod that is not adopted yet
		manifest := f.root + "/pods/u1/" + file
		write(t, manifest, uses)
		all, err := claims.List(f.dirs(), nil)
		if err != nil || len(all) != 1 || all[0].Name != "data" || strings.Join(all[0].Pods, " ") != "web-node1" {
			t.Errorf("%s: %+v, %v", file, all, err)
		}
		if _, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: "data"}, nil); !errors.Is(err, claims.ErrInUse) {
			t.Errorf("%s: a volume in use: %v", file, err)
		}
		write(t, manifest, "{")
		if _, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: "data"}, nil); err == nil {
			t.Errorf("%s: removed though it is not known whether it is in use", file)
		}
		if err := os.Remove(manifest); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(dir + "/file"); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: "data"}, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(f.root + "/claims/default"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	if b, err := os.ReadFile(precious + "/file"); err != nil || string(b) != "mine" {
		t.Errorf("outside: %q, %v", b, err)
	}
	for _, name := range []string{"data", "..", ".", "../default", "", ".going-data"} {
		if _, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: name}, nil); !errors.Is(err, claims.ErrNoVolume) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestMountedClaimStays(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir := f.root + "/claims/default/data/sub"
	write(t, dir+"/x", "")
	outside := t.TempDir()
	write(t, outside+"/file", "mine")
	if err := unix.Mount(outside, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0)
	if _, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: "data"}, nil); err == nil || !strings.Contains(err.Error(), "is mounted") {
		t.Error(err)
	}
	if b, err := os.ReadFile(outside + "/file"); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}

// The age of a claim is that of its directory, and not of its content.
func TestClaimMade(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	if _, err := f.Setup(t.Context(), podWith(claimed("data")), mounting(mountV), pod.Sandbox{}); err != nil {
		t.Fatal(err)
	}
	dir := f.root + "/claims/default/data"
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_BTIME, &s); err != nil || s.Mask&unix.STATX_BTIME == 0 {
		t.Skipf("the file system does not know when a directory was created: %v", err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(dir, later, later); err != nil {
		t.Fatal(err)
	}
	all, err := claims.List(f.dirs(), nil)
	if err != nil || len(all) != 1 || all[0].Made.After(time.Now()) {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestBadClaims(t *testing.T) {
	for _, name := range []string{"..", "a/b", "", ".going-x"} {
		f := newFixture(t)
		if _, err := f.Setup(t.Context(), podWith(claimed(name)), mounting(mountV), pod.Sandbox{}); err == nil {
			t.Errorf("%q: no error", name)
		}
	}
	f := newFixture(t)
	outside := t.TempDir()
	if err := errors.Join(os.MkdirAll(f.root+"/claims/default", 0o755), os.Symlink(outside, f.root+"/claims/default/data")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Setup(t.Context(), podWith(claimed("data")), mounting(mountV), pod.Sandbox{}); err == nil {
		t.Error("a link in place of a claim is followed")
	}
}

func TestClaimsGroup(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir := f.root + "/claims/default/data"
	write(t, dir+"/sub/file", "")
	outside := filepath.Join(t.TempDir(), "precious")
	write(t, outside, "")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Symlink(outside, dir+"/link")); err != nil {
		t.Fatal(err)
	}
	group := func(path string) uint32 {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Gid
	}
	p := podWith(claimed("data"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
	setup := func() {
		t.Helper()
		if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err != nil {
			t.Fatal(err)
		}
	}
	setup()
	for _, path := range []string{dir, dir + "/sub", dir + "/sub/file", dir + "/link"} {
		if group(path) != 4242 {
			t.Errorf("%s belongs to group %d", path, group(path))
		}
	}
	if group(outside) == 4242 || mode(t, outside).Perm() != 0o644 {
		t.Error("a link led the group outside")
	}
	if m, want := mode(t, dir+"/sub"), 0o770|os.ModeSetgid; m&want != want {
		t.Errorf("directory %v", m)
	}
	if m := mode(t, dir+"/sub/file").Perm(); m != 0o664 {
		t.Errorf("file %v", m)
	}
	// A later container of the pod leaves it alone; a later pod does not, unless it is told to look at the root only.
	reset := func() {
		if err := os.Lchown(dir+"/sub/file", 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	reset()
	setup()
	if group(dir+"/sub/file") != 0 {
		t.Error("given to the group again for the same pod")
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	policy := v1.FSGroupChangeOnRootMismatch
	p.Spec.SecurityContext.FSGroupChangePolicy = &policy
	setup()
	if group(dir+"/sub/file") != 0 {
		t.Error("given to the group though the root is right")
	}
	if err := errors.Join(f.Teardown(t.Context(), p.UID), os.Lchown(dir, 0, 0)); err != nil {
		t.Fatal(err)
	}
	setup()
	if group(dir+"/sub/file") != 4242 {
		t.Error("not given to the group though the root is wrong")
	}
}

// TestDeepClaim: a container has created thousands of nested directories.
func TestDeepClaim(t *testing.T) {
	needRoot(t)
	const depth, group = 5000, 4242
	f := newFixture(t)
	dir := f.root + "/claims/default/data"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	treetest.Deep(t, dir, depth)
	treetest.FewDescriptors(t)
	p := podWith(claimed("data"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(group))}
	if _, err := f.Volumes.Setup(treetest.Timely(t), pod.Inside{Pod: p, Container: mounting(mountV)}); err != nil {
		t.Fatal(err)
	}
	given := 0
	root, err := sys.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	count := func(at int, name string, flags int) error {
		var st unix.Stat_t
		err := unix.Fstatat(at, name, &st, flags|unix.AT_SYMLINK_NOFOLLOW)
		if st.Gid == group {
			given++
		}
		return err
	}
	if err := sys.WalkTree(t.Context(), root, sys.TreeVisitor{
		Enter: func(at int) error { return count(at, "", unix.AT_EMPTY_PATH) },
		File:  func(at int, name string) error { return count(at, name, 0) },
	}); err != nil || given != 3*depth {
		t.Errorf("given: %d files, %v", given, err)
	}
	if _, err := claims.Remove(treetest.Timely(t), f.dirs(), pod.Key{Namespace: "default", Name: "data"}, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not removed: %v", err)
	}
}

// TestClaimsGroupEnds: changing the group of a large claim ends with its context, and other pods do
// not wait for it.
func TestClaimsGroupEnds(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	treetest.Deep(t, mkdir(t, f.root+"/claims/default/data"), 1)
	p := podWith(claimed("data"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
	ended, end := context.WithCancel(t.Context())
	end()
	claim, err := sys.OpenTree(f.root + "/claims/default/data")
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	if err := fsgroup.Give(ended, claim, p); !errors.Is(err, context.Canceled) {
		t.Errorf("given: %v", err)
	}
}

// TestClaimsGroupAndPrograms: a process makes a program that runs with the process's group. Whoever executes it does not
// get the group of another pod that has the claim.
func TestClaimsGroupAndPrograms(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir := mkdir(t, f.root+"/claims/default/data/dir")
	program := dir + "/program"
	write(t, program, "")
	if err := errors.Join(os.Chown(program, 1000, 1000), os.Chmod(program, 0o711|os.ModeSetuid|os.ModeSetgid),
		os.Chmod(dir, 0o755|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	p := podWith(claimed("data"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
	if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{program: 0o771, dir: os.ModeDir | os.ModeSetgid | os.ModeSticky | 0o775} {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Gid != 4242 || mode(t, path) != want {
			t.Errorf("%s: group %d, mode %v, %v; want %v", path, st.Gid, mode(t, path), err, want)
		}
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestClaimsGroupRace: while a claim's group is changed, a container exchanges a directory for a
// symbolic link that leads out of the volume.
func TestClaimsGroupRace(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, outside := mkdir(t, f.root+"/claims/default/data/sub"), t.TempDir()
	write(t, outside+"/precious", "")
	write(t, dir+"/dir/precious", "")
	if err := errors.Join(os.Chmod(outside+"/precious", 0o600), os.Symlink(outside, dir+"/link")); err != nil {
		t.Fatal(err)
	}
	p := podWith(claimed("data"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
	defer treetest.Swap(t, dir+"/dir", dir+"/link")()
	for range 2000 {
		claim, err := sys.OpenTree(filepath.Dir(dir))
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(fsgroup.Give(t.Context(), claim, p), claim.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{outside, outside + "/precious"} {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Gid == 4242 || st.Mode&0o020 != 0 {
			t.Errorf("%s: group %d, mode %o, %v", path, st.Gid, st.Mode, err)
		}
	}
}

// TestKilledRemoval: the command was killed when it had renamed the directory. It is finished when it is given again.
func TestKilledRemoval(t *testing.T) {
	f := newFixture(t)
	write(t, f.root+"/claims/default/.going-data/file", "")
	if _, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: "data"}, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(f.root + "/claims/default"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// TestClaimsThatAreNotMounted: once the claims, those of a namespace or one of them have had a mount of their own, they
// are not made without it. Those beside it are.
func TestClaimsThatAreNotMounted(t *testing.T) {
	needRoot(t)
	for _, c := range []struct{ at, record, refused, beside string }{
		{"", "claims-mounted", "data new", ""},
		{"default", "claims-mounted.d/default/.namespace", "data new", ""},
		{"default/data", "claims-mounted.d/default/data", "data", "new"},
	} {
		for _, bind := range []bool{false, true} {
			t.Run(fmt.Sprint(filepath.Base(c.record), bind), func(t *testing.T) { claimsThatAreNotMounted(t, c.at, c.record, bind, c.refused, c.beside) })
		}
	}
}

func claimsThatAreNotMounted(t *testing.T, within, record string, bind bool, refused, beside string) {
	f := newFixture(t)
	at, disk := filepath.Join(f.dirs().Claims(), within), t.TempDir()
	mount := func() {
		t.Helper()
		source, kind, flags := "none", "tmpfs", uintptr(0)
		if bind {
			source, kind, flags = disk, "", unix.MS_BIND
		}
		if err := errors.Join(os.MkdirAll(at, 0o700), unix.Mount(source, at, kind, flags, "")); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	setup := func(uid pod.UID, claim string) error {
		p := podWith(claimed(claim))
		p.UID = uid
		_, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{})
		return errors.Join(err, f.Teardown(t.Context(), uid))
	}
	if err := setup("u1", "data"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	for claim := range strings.FieldsSeq(refused) {
		if err := setup("u2", claim); err == nil || !strings.Contains(err.Error(), at+" is not mounted; if it is to have none") {
			t.Errorf("%s: %v", claim, err)
		}
		_, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: claim}, nil)
		if err == nil || !strings.Contains(err.Error(), at+" is not mounted") {
			t.Errorf("%s is removed: %v", claim, err)
		}
	}
	if entries, err := os.ReadDir(at); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	for claim := range strings.FieldsSeq(beside) {
		if err := setup("u2", claim); err != nil {
			t.Error(err)
		}
	}
	mount()
	if err := setup("u3", "data"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(unix.Unmount(at, 0), os.Remove(filepath.Join(f.root, record)), setup("u4", "data")); err != nil {
		t.Error(err)
	}
}

// TestClaimsThatPodsMount: a pod that mounts a file system on its claim itself begins without that, and is no reason for
// others to begin. The claim's name may be as long as any.
func TestClaimsThatPodsMount(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	name := strings.Repeat("a", 253)
	at := f.dirs().Claim("default", name)
	mounts := func(propagation v1.MountPropagationMode) error {
		p := podWith(claimed(name))
		c := mounting(v1.VolumeMount{Name: "v", MountPath: "/v", MountPropagation: &propagation})
		p.Spec.Containers = []v1.Container{*c}
		return f.Mount(t.Context(), pod.Inside{Pod: p})
	}
	mount := func() {
		t.Helper()
		test.Must(t, os.MkdirAll(at, 0o700))
		test.Must(t, unix.Mount("none", at, "tmpfs", 0, ""))
	}
	mount()
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	test.Must(t, mounts(v1.MountPropagationBidirectional)) // once more
	test.Must(t, unix.Unmount(at, 0))
	if err := mounts(v1.MountPropagationHostToContainer); err != nil {
		t.Errorf("what the pod has mounted counts: %v", err)
	}
	mount()
	test.Must(t, mounts(v1.MountPropagationHostToContainer))
	test.Must(t, unix.Unmount(at, 0))
	if err := mounts(v1.MountPropagationHostToContainer); err == nil {
		t.Error("it begins without what was mounted")
	}
	if err := mounts(v1.MountPropagationBidirectional); err != nil {
		t.Errorf("who is to mount it does not begin: %v", err)
	}
}

// TestClaimThatIsNotGivenToTheGroup: a claim whose file system refuses that is used as it is.
func TestClaimThatIsNotGivenToTheGroup(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	at := f.dirs().Claim("default", "data")
	test.Must(t, os.MkdirAll(at, 0o700))
	test.Must(t, unix.Mount("none", at, "tmpfs", unix.MS_RDONLY, ""))
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	p := podWith(claimed("data"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
	var log test.Buffer
	for _, readOnly := range []bool{true, false} {
		f = f.with(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = readOnly
		if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err != nil {
			t.Errorf("read-only %t: %v", readOnly, err)
		}
		if warned := strings.Contains(log.String(), "not given to the pod's fsGroup"); warned == readOnly {
			t.Errorf("read-only %t: warned: %t", readOnly, warned)
		}
	}
}

// TestClaimsAtOnce: several pods may make claims of one namespace at a time, also the same ones.
func TestClaimsAtOnce(t *testing.T) {
	f := newFixture(t)
	var all sync.WaitGroup
	for maker := range 8 {
		all.Go(func() {
			for i := range 200 {
				if err := f.makeClaim(pod.Key{Namespace: "default", Name: fmt.Sprint("data", i, "-", maker/2)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
