package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/treetest"
)

func memory(name, limit string) v1.Volume {
	e := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
	if limit != "" {
		e.SizeLimit = new(resource.MustParse(limit))
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: e}}
}

func (f fixture) mustSetup(t *testing.T, p *v1.Pod, c *v1.Container) string {
	t.Helper()
	mounts, err := f.Setup(t.Context(), p, c, pod.Sandbox{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Teardown(context.Background(), p.UID) })
	for _, m := range mounts {
		if m.ContainerPath == "/v" {
			return m.HostPath
		}
	}
	t.Fatal("not mounted")
	return ""
}

// left are the mounts below the fixture's root.
func (f fixture) left(t *testing.T) []string {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(f.root))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range mounts {
		out = append(out, m.Mountpoint)
	}
	return out
}

// tmpfsKnows reports whether the kernel has an option of tmpfs.
func tmpfsKnows(option string) bool {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.FsconfigSetFlag(fd, option) == nil
}

func TestMemory(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		limit, containers string
		want              uint64
	}{{"1Mi", "", 1 << 20}, {"1Mi", "64Mi", 1 << 20}, {"64Mi", "1Mi", 1 << 20}, {"", "2Mi", 2 << 20}} {
		f := newFixture(t)
		p := podWith(memory("v", c.limit))
		p.Spec.Containers = []v1.Container{{Name: "c"}}
		if c.containers != "" {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(c.containers)}
		}
		dir := f.mustSetup(t, p, mounting(mountV))
		write(t, dir+"/file", "shared")
		if again := f.mustSetup(t, p, mounting(mountV)); again != dir || len(f.left(t)) != 1 {
			t.Errorf("mounted again: %v", f.left(t))
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Blocks*uint64(fs.Bsize) != c.want {
			t.Errorf("%+v: %d bytes of type %x, %v", c, fs.Blocks*uint64(fs.Bsize), fs.Type, err)
		}
		if mode(t, dir).Perm() != 0o777 {
			t.Errorf("mode %v", mode(t, dir))
		}
		mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
		if err != nil || len(mounts) != 1 || strings.Contains(mounts[0].VFSOptions, "noswap") != tmpfsKnows("noswap") {
			t.Errorf("it may be swapped out: %+v, %v", mounts, err)
		}
		if err := f.Teardown(t.Context(), p.UID); err != nil || len(f.left(t)) > 0 {
			t.Errorf("%v, %v", err, f.left(t))
		}
	}
}

// TestMemorySize: what limits the pod's cgroup limits its volumes in memory, whichever containers fill them.
func TestMemorySize(t *testing.T) {
	t.Parallel()
	always := v1.ContainerRestartPolicyAlways
	limited := func(memory string) v1.ResourceRequirements {
		if memory == "" {
			return v1.ResourceRequirements{}
		}
		return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}}
	}
	const none = ""
	for _, c := range []struct {
		name, own, whole string
		inits            []v1.Container
		containers       []string
		want             string
	}{
		{name: "no limit", containers: []string{none}, want: "0"},
		{name: "containers", containers: []string{"64Mi", "1Mi"}, want: "65Mi"},
		{name: "not all containers", containers: []string{"64Mi", none}, want: "0"},
		{name: "a sidecar", inits: []v1.Container{{RestartPolicy: &always, Resources: limited("512Mi")}}, containers: []string{"64Mi"}, want: "576Mi"},
		{name: "an init container", inits: []v1.Container{{Resources: limited("2Gi")}}, containers: []string{"512Mi"}, want: "2Gi"},
		{name: "an init container without a limit", inits: []v1.Container{{}}, containers: []string{"512Mi"}, want: "0"},
		{name: "the pod", whole: "1Gi", containers: []string{none}, want: "1Gi"},
		{name: "the pod, and less of the volume", own: "1Mi", whole: "1Gi", containers: []string{none}, want: "1Mi"},
		{name: "the pod, and more of the volume", own: "2Gi", whole: "1Gi", containers: []string{none}, want: "1Gi"},
		{name: "the volume", own: "1Mi", containers: []string{none}, want: "1Mi"},
	} {
		volume := memory("v", c.own)
		p := podWith(volume)
		p.Spec.InitContainers, p.Spec.Containers = c.inits, nil
		for _, limit := range c.containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: limited(limit)})
		}
		if c.whole != "" {
			p.Spec.Resources = new(limited(c.whole))
		}
		want := resource.MustParse(c.want)
		if got := memorySize(p, volume.EmptyDir); got != want.Value() {
			t.Errorf("%s: %d, want %d", c.name, got, want.Value())
		}
	}
}

func TestHugePages(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}})
	dir := f.mustSetup(t, p, mounting(mountV))
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.HUGETLBFS_MAGIC || fs.Bsize != 2<<20 {
		t.Errorf("pages of %d bytes, type %x, %v", fs.Bsize, fs.Type, err)
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil || len(f.left(t)) > 0 {
		t.Errorf("%v, %v", err, f.left(t))
	}
}

func TestPageSize(t *testing.T) {
	for _, c := range []struct {
		medium v1.StorageMedium
		asks   []v1.ResourceName
		want   string
	}{
		{"HugePages-2Mi", nil, "2097152"}, {"HugePages", []v1.ResourceName{"hugepages-1Gi", "cpu"}, "1073741824"},
		{"HugePages-18446744073709551616", nil, "error"}, {"HugePages-1234567890123456789e999999999", nil, "error"},
		{"HugePages", nil, "error"}, {"HugePages", []v1.ResourceName{"init:hugepages-2Mi"}, "2097152"}, {"HugePages", []v1.ResourceName{"hugepages-1Gi", "hugepages-2Mi"}, "error"}, {"HugePages-x", nil, "error"},
	} {
		p := podWith()
		for _, name := range c.asks {
			if asked, ok := strings.CutPrefix(string(name), "init:"); ok {
				p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Resources: v1.ResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceName(asked): resource.MustParse("1")}}})
				continue
			}
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{name: resource.MustParse("1")}}})
		}
		size, err := pageSize(p, c.medium)
		got := strconv.FormatInt(size, 10)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s of %v: %s, %v", c.medium, c.asks, got, err)
		}
	}
}

func partOf(sub string) *v1.Container {
	return mounting(v1.VolumeMount{Name: "v", MountPath: "/v", SubPath: sub})
}

func TestSubPath(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	dir := layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("v")
	write(t, dir+"/file", "text")
	write(t, dir+"/deep/er/x", "x")
	if err := errors.Join(os.Symlink("deep/er", dir+"/in"), os.Symlink("../deep", dir+"/deep/up")); err != nil {
		t.Fatal(err)
	}
	for sub, want := range map[string]string{"file": "", "deep/er": "x", "in": "x", "deep/up/er": "x", "made/for/it": "", "in/made": ""} {
		at := f.mustSetup(t, p, partOf(sub))
		if want != "" {
			if _, err := os.Stat(filepath.Join(at, want)); err != nil {
				t.Errorf("%s: %v", sub, err)
			}
		}
		var there, source unix.Stat_t
		if err := errors.Join(unix.Stat(at, &there), unix.Stat(filepath.Join(dir, sub), &source)); err != nil || there.Ino != source.Ino {
			t.Errorf("%s is not what is mounted: %v", sub, err)
		}
		if len(f.left(t)) != 1 {
			t.Errorf("%s: mounts %v", sub, f.left(t))
		}
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil || len(f.left(t)) > 0 {
		t.Errorf("%v, %v", err, f.left(t))
	}
	if b, err := os.ReadFile(dir + "/file"); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSubPathOfABackup: a backup of a running pod has a copy of what was mounted, which a restore puts in its place.
func TestSubPathOfABackup(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	dir := layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("v")
	write(t, dir+"/www/now", "")
	write(t, dir+"/file", "now")
	for _, sub := range []string{"www", "file"} {
		at := f.mustSetup(t, p, partOf(sub))
		if err := f.Teardown(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
		if sub == "www" {
			write(t, at+"/of/the/backup", "")
		} else {
			write(t, at, "of the backup")
		}
		at = f.mustSetup(t, p, partOf(sub))
		if _, err := os.Stat(at + "/of"); err == nil {
			t.Errorf("%s is the copy", sub)
		}
		if err := f.Teardown(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(at + "/of"); err == nil {
			t.Errorf("%s: the copy is still there", sub)
		}
	}
	now, err := os.ReadFile(dir + "/file")
	if _, missing := os.Stat(dir + "/www/now"); err != nil || missing != nil || string(now) != "now" {
		t.Errorf("the volume has changed: %q, %v, %v", now, err, missing)
	}
}

// TestFilesOfTheHost: the machine's own files are marked, also where they are mounted from podrun's directory: their
// labels stay.
func TestFilesOfTheHost(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	write(t, f.host+"/srv/www/x", "x")
	write(t, layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("v")+"/www/x", "x")
	for _, sub := range []string{"", "www"} {
		for _, c := range []struct {
			v    v1.Volume
			want bool
		}{{hostPath("/srv", v1.HostPathUnset), true}, {emptyDir("v"), false}} {
			p := podWith(c.v)
			mounts, err := f.Setup(t.Context(), p, partOf(sub), pod.Sandbox{})
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(mounts, func(m pod.Mount) bool { return m.ContainerPath == "/v" }); i < 0 || mounts[i].OfHost != c.want {
				t.Errorf("part %q of %v: %v", sub, c.v, mounts)
			}
			if err := f.Teardown(t.Context(), p.UID); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSubPathEscapes: nothing that a container creates in its volume makes files outside the volume
// visible in another container.
func TestSubPathEscapes(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	dir := layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("v")
	outside := t.TempDir()
	write(t, dir+"/file", "")
	for name, to := range map[string]string{
		"absolute": outside, "up": "../../../..", "proc": "/proc/self/root", "chain": "absolute", "loop": "loop", "dangling": "../nothing",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"absolute", "absolute/made", "up", "up/made", "proc", "proc/etc", "chain/x", "loop", "dangling", "dangling/made", "file/x", "../x", "/etc", "a/../../x"} {
		if mounts, err := f.Setup(t.Context(), p, partOf(sub), pod.Sandbox{}); err == nil {
			t.Errorf("%s: %+v", sub, mounts)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 || len(f.left(t)) > 0 {
		t.Errorf("outside: %v, %v; mounts %v", left, err, f.left(t))
	}
}

// TestSubPathRace: a directory that is repeatedly exchanged for a symbolic link out of the volume
// is never followed.
func TestSubPathRace(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	dir := layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("v")
	outside := t.TempDir()
	write(t, outside+"/sub/precious", "")
	write(t, dir+"/real/sub/x", "")
	if err := os.Symlink(outside, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	end := treetest.Swap(t, dir+"/real", dir+"/link")
	t.Cleanup(func() { _ = f.Teardown(context.Background(), p.UID) })
	in, refused := 0, 0
	for i := 0; i < 3000 && (in < 20 || refused < 20 || i < 300); i++ {
		mounts, err := f.Setup(t.Context(), p, partOf("real/sub"), pod.Sandbox{})
		if err != nil {
			refused++
			continue
		}
		in++
		for _, m := range mounts {
			if m.ContainerPath != "/v" {
				continue
			}
			if _, err := os.Lstat(m.HostPath + "/precious"); err == nil {
				t.Fatal("what is outside is mounted")
			}
		}
	}
	end()
	if in == 0 || refused == 0 {
		t.Logf("%d went in, %d were refused: no race was met", in, refused)
	}
}

// TestSubPathModes: a directory that is made for a subPath has the mode of the one around it, whatever the umask is. That of
// another directory does not change, although somebody exchanges what has just been made.
func TestSubPathModes(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	t.Cleanup(func() { _ = f.Teardown(context.Background(), p.UID) })
	dir := layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("v")
	write(t, dir+"/shared/x", "")
	write(t, dir+"/private/x", "")
	for path, mode := range map[string]os.FileMode{dir + "/shared": 0o775 | os.ModeSetgid, dir + "/private": 0o700} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Setup(t.Context(), p, partOf("shared/a/b"), pod.Sandbox{}); err != nil {
		t.Fatal(err)
	}
	mode := func(path string) os.FileMode {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	for _, path := range []string{"/shared/a", "/shared/a/b"} {
		if got := mode(dir + path); got != os.ModeDir|os.ModeSetgid|0o775 {
			t.Errorf("%s: %v", path, got)
		}
	}
	if err := os.Symlink("../private", dir+"/shared/evil"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir+"/shared/evil", unix.AT_FDCWD, dir+"/shared/new", unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 300 {
		_, _ = f.Setup(t.Context(), p, partOf("shared/new"), pod.Sandbox{})
		if got := mode(dir + "/private"); got.Perm() != 0o700 {
			t.Errorf("another directory's mode became %v", got)
			break
		}
		_ = f.Teardown(t.Context(), p.UID)
		for _, name := range []string{"new", "evil"} { // either is the link, or the directory
			_ = os.Remove(dir + "/shared/" + name)
		}
		_ = os.Symlink("../private", dir+"/shared/evil")
	}
	close(stop)
	<-done
}

func TestSubPathExpr(t *testing.T) {
	needRoot(t)
	for expr, want := range map[string]string{
		"$(NAME)/x": "web/x", "$$(NAME)": "$(NAME)", "$(NONE)": "error", "$(UP)": "error", "$(ABSOLUTE)": "error", "$(EMPTY)": "error",
		"$(PASS)": "error", "`id`": "`id`",
	} {
		f := newFixture(t)
		p := podWith(emptyDir("v"))
		c := mounting(v1.VolumeMount{Name: "v", MountPath: "/v", SubPathExpr: expr})
		in := pod.Inside{Pod: p, Container: c, Env: []pod.Variable{{Name: "NAME", Value: "web"}, {Name: "UP", Value: "a/../../b"},
			{Name: "ABSOLUTE", Value: "/etc"}, {Name: "EMPTY"}, {Name: "PASS", Value: "w0rd", Secret: true}}}
		t.Cleanup(func() { _ = f.Teardown(context.Background(), p.UID) })
		_, err := f.Volumes.Setup(t.Context(), in)
		_, made := os.Stat(filepath.Join(layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("v"), want))
		if (want == "error") != (err != nil) || err == nil && made != nil || err != nil && strings.Contains(err.Error(), "w0rd") {
			t.Errorf("%s: %v, %v", expr, err, made)
		}
	}
}

// TestTeardownLeavesForeignMounts: only podrun's own mounts are unmounted; other mounts below or
// beside them stay.
func TestTeardownLeavesForeignMounts(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(memory("v", "1Mi"), emptyDir("disk"))
	c := mounting(mountV, v1.VolumeMount{Name: "disk", MountPath: "/d"}, v1.VolumeMount{Name: "disk", MountPath: "/s", SubPath: "part"})
	dir := f.mustSetup(t, p, c)
	disk := layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("disk")
	precious := t.TempDir()
	write(t, precious+"/file", "mine")
	bind := func(at string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(at, 0o755), unix.Mount(precious, at, "", unix.MS_BIND, "")); err != nil {
			t.Fatal(err)
		}
	}
	nested, beside := dir+"/nested", disk+"/part/nested"
	bind(nested)
	bind(beside)
	err := f.Teardown(t.Context(), p.UID)
	if err == nil || !strings.Contains(err.Error(), "unmount "+dir) {
		t.Errorf("a busy mount: %v", err)
	}
	if left := fmt.Sprint(f.left(t)); !strings.Contains(left, nested) || !strings.Contains(left, beside) || strings.Contains(left, "volume-subpaths") {
		t.Errorf("mounts: %s", left)
	}
	if err := errors.Join(unix.Unmount(nested, 0), unix.Unmount(beside, 0)); err != nil {
		t.Fatal(err)
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil || len(f.left(t)) > 0 {
		t.Errorf("%v, %v", err, f.left(t))
	}
	if b, err := os.ReadFile(precious + "/file"); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestTeardownOfNothing(t *testing.T) {
	f := newFixture(t)
	for range 2 {
		if err := f.Teardown(t.Context(), "u1"); err != nil {
			t.Error(err)
		}
	}
	if err := f.Teardown(t.Context(), "../.."); err == nil {
		t.Error("a path is taken for a UID")
	}
}

// TestEnded: what a pod that has ended still has mounted of its volumes is unmounted, so that their drivers can be.
func TestEnded(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	t.Cleanup(func() { _ = f.Teardown(context.Background(), p.UID) })
	if _, err := f.Setup(t.Context(), p, partOf("part"), pod.Sandbox{}); err != nil {
		t.Fatal(err)
	}
	pins := func() (n int) {
		all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(f.root))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := pins(); n != 1 {
		t.Fatalf("%d mounts", n)
	}
	if err := f.Ended(t.Context(), p.UID); err != nil || pins() != 0 {
		t.Errorf("%d mounts, %v", pins(), err)
	}
}

// TestFlagsOfClaims: the administrator's file system for claims has neither devices nor set-user-ID bits; a runtime that makes it
// read-only in a container is told so.
func TestFlagsOfClaims(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	claims := layout.Dirs{Root: f.root}.Claims()
	if err := os.MkdirAll(claims, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := sys.MountFS("tmpfs", "test", claims, "", sys.AllowExec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sys.Unmount(claims) })
	p := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	all, err := f.Setup(t.Context(), p, mounting(v1.VolumeMount{Name: "v", MountPath: "/v", ReadOnly: true}), pod.Sandbox{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.ContainerPath == "/v" && (!m.NoSUID || !m.NoDev) {
			t.Errorf("%+v", m)
		}
	}
}
