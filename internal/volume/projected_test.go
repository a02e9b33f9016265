package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/filled"
)

func ref(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

// objects are a ConfigMap and a Secret of the name m.
func objects(data map[string]string, secret map[string][]byte) pod.Objects {
	key := pod.Key{Namespace: "default", Name: "m"}
	return pod.Objects{
		ConfigMaps: map[pod.Key]*v1.ConfigMap{key: {Data: data, BinaryData: map[string][]byte{"bin": {0, 0xff}}}},
		Secrets:    map[pod.Key]*v1.Secret{key: {Data: secret}},
	}
}

func configMap(change ...func(*v1.ConfigMapVolumeSource)) v1.Volume {
	s := &v1.ConfigMapVolumeSource{LocalObjectReference: ref("m")}
	for _, f := range change {
		f(s)
	}
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: s}}
}

// shown is what a volume shows: a line of path, mode and content for each file, found through its links.
func shown(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.Walk(real, func(path string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			name := e.Name() + strings.TrimPrefix(path, real)
			lines = append(lines, fmt.Sprintf("%s %o %q", name, info.Mode().Perm(), b))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(lines, "\n")
}

// fill sets the pod's volume v up and returns its directory and what it shows, or the error.
func (f fixture) fill(t *testing.T, in pod.Inside) (dir, shows string) {
	t.Helper()
	in.Container = mounting(mountV)
	mounts, err := f.Volumes.Setup(t.Context(), in)
	if err != nil {
		return "", "error: " + err.Error()
	}
	t.Cleanup(func() {
		if err := f.Teardown(context.Background(), in.Pod.UID); err != nil {
			t.Error(err)
		}
	})
	for _, m := range mounts {
		if m.ContainerPath == "/v" {
			if !m.ReadOnly {
				t.Error("it can be written")
			}
			return m.HostPath, shown(t, m.HostPath)
		}
	}
	t.Fatal("not mounted")
	return "", ""
}

func TestFilledVolumes(t *testing.T) {
	needRoot(t)
	o := objects(map[string]string{"a": "one", "b": "two"}, map[string][]byte{"pass": []byte("word")})
	missing := func(s *v1.ConfigMapVolumeSource) { s.Name = "none" }
	optional := func(s *v1.ConfigMapVolumeSource) { s.Optional = new(true) }
	items := func(items ...v1.KeyToPath) func(*v1.ConfigMapVolumeSource) {
		return func(s *v1.ConfigMapVolumeSource) { s.Items = items }
	}
	for _, c := range []struct {
		name   string
		volume v1.Volume
		want   string
	}{
		{"ConfigMap", configMap(), "a 644 \"one\"\nb 644 \"two\"\nbin 644 \"\\x00\\xff\""},
		{"a mode for all", configMap(func(s *v1.ConfigMapVolumeSource) { s.DefaultMode = new(int32(0o400)) }, items(v1.KeyToPath{Key: "a", Path: "a"})), `a 400 "one"`},
		{"items", configMap(items(v1.KeyToPath{Key: "a", Path: "x/y", Mode: new(int32(0o751))}, v1.KeyToPath{Key: "b", Path: "x/z"})), "x/y 751 \"one\"\nx/z 644 \"two\""},
		{"a path that is the volume's own", configMap(items(v1.KeyToPath{Key: "a", Path: "./..data"})), `error: MountVolume.SetUp failed for volume "v": file "..data": its path must not begin with '..'`},
		{"missing key", configMap(items(v1.KeyToPath{Key: "c", Path: "c"})), `error: MountVolume.SetUp failed for volume "v": configmap references non-existent config key: c`},
		{"missing key, optional", configMap(optional, items(v1.KeyToPath{Key: "c", Path: "c"}, v1.KeyToPath{Key: "a", Path: "a"})), `a 644 "one"`},
		{"missing", configMap(missing), `error: MountVolume.SetUp failed for volume "v": configmap "none" not found`},
		{"missing, optional", configMap(missing, optional), ""},
		{"Secret", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "m"}}}, `pass 644 "word"`},
		{"missing Secret", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none"}}}, `error: MountVolume.SetUp failed for volume "v": secret "none" not found`},
		{"downward API", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
			{Path: "deep/labels", Mode: new(int32(0o600)), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "requests.cpu"}},
		}}}}, "cpu 644 \"0\"\ndeep/labels 600 \"app=\\\"web\\\"\"\nname 644 \"web-node1\""},
		{"projected", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("m"), Items: []v1.KeyToPath{{Key: "a", Path: "all/a"}}}},
			{Secret: &v1.SecretProjection{LocalObjectReference: ref("m"), Items: []v1.KeyToPath{{Key: "pass", Path: "all/pass"}}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "uid", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}},
		}, DefaultMode: new(int32(0o440))}}}, "all/a 440 \"one\"\nall/pass 440 \"word\"\nuid 440 \"u1\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := podWith(c.volume)
			p.Labels = map[string]string{"app": "web"}
			p.Spec.Containers = []v1.Container{{Name: "c"}}
			dir, got := newFixture(t).fill(t, pod.Inside{Pod: p, Objects: o})
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			_, memory := filledKind(&c.volume)
			if want := strings.HasPrefix(c.name, "Secret") || c.name == "downward API" || c.name == "projected"; dir != "" && memory != want {
				t.Errorf("in memory: %v", memory)
			}
			var fs unix.Statfs_t
			if dir != "" && memory && (unix.Statfs(dir, &fs) != nil || fs.Type != unix.TMPFS_MAGIC) {
				t.Errorf("kept in a file system of type %x", fs.Type)
			}
		})
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts")
	}
}

// TestDownwardOfAnEarlierPodrun: files that an earlier podrun wrote to the disk stay where running containers
// see them, and follow the pod.
func TestDownwardOfAnEarlierPodrun(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	p := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}})
	p.Labels = map[string]string{"app": "one"}
	dir := f.dirs().Revision(p.UID).Volume(layout.KindDownwardAPI, "v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := filled.Write(dir, filled.Files{"labels": {Data: []byte("app=\"zero\""), Mode: 0o644}}, nil); err != nil {
		t.Fatal(err)
	}
	running, err := os.Open(dir) // as the mount of a container that runs
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	for range 2 { // a start of another container, and a restart
		if _, got := f.fill(t, pod.Inside{Pod: p}); !strings.Contains(got, `one`) {
			t.Fatalf("%s", got)
		}
	}
	p.Labels["app"] = "two"
	if err := f.Refresh(t.Context(), pod.Inside{Pod: p}); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/labels", running.Fd())); err != nil || string(now) != `app="two"` {
		t.Errorf("a running container sees %q, %v", now, err)
	}
}

func TestRefresh(t *testing.T) {
	f := newFixture(t)
	p := podWith(configMap())
	in := pod.Inside{Pod: p, Objects: objects(map[string]string{"a": "1", "gone": "x"}, nil)}
	dir, _ := f.fill(t, in)
	link := func() string {
		to, err := os.Readlink(filepath.Join(dir, "..data"))
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	refresh := func(o pod.Objects, outdated ...string) {
		t.Helper()
		for _, want := range [][]string{outdated, nil} {
			if got, err := Outdated(f.dirs(), p, o); err != nil || !slices.Equal(got, want) {
				t.Errorf("outdated: %v, %v; want %v", got, err, want)
			}
			in.Objects = o
			if err := f.Refresh(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := link()
	refresh(in.Objects)
	if link() != first {
		t.Error("written anew though nothing changed")
	}
	refresh(objects(map[string]string{"a": "2", "new": "y"}, nil), "v")
	if got := shown(t, dir); got != "a 644 \"2\"\nbin 644 \"\\x00\\xff\"\nnew 644 \"y\"" {
		t.Error(got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
		t.Errorf("%v, %v", entries, err)
	}
	refresh(pod.Objects{})
	if got := shown(t, dir); !strings.Contains(got, `a 644 "2"`) {
		t.Errorf("what was there is gone with its ConfigMap: %s", got)
	}
	// And a container that starts meanwhile gets it too.
	if _, got := f.fill(t, in); !strings.Contains(got, `a 644 "2"`) {
		t.Error(got)
	}
}

// TestRefreshWhileUnsure: while a source of manifests is not read yet, a missing optional object
// leaves a volume as it is, also for containers that start meanwhile; when the object is known not
// to exist, the volume becomes empty.
func TestRefreshWhileUnsure(t *testing.T) {
	optional := new(true)
	projected := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("m"), Optional: optional}},
	}}}}
	for name, volume := range map[string]v1.Volume{
		"configMap": configMap(func(s *v1.ConfigMapVolumeSource) { s.Optional = optional }), "projected": projected,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			in := pod.Inside{Pod: podWith(volume), Objects: pod.Objects{Partial: true}}
			if _, got := f.fill(t, in); got != "" {
				t.Errorf("at the start: %s", got)
			}
			in.Objects = objects(map[string]string{"a": "1"}, nil)
			dir, want := f.fill(t, in)
			in.Objects = pod.Objects{Partial: true}
			if err := f.Refresh(t.Context(), in); err != nil {
				t.Error(err)
			}
			if got := shown(t, dir); got != want {
				t.Errorf("while it may come yet: %s", got)
			}
			if _, got := f.fill(t, in); got != want {
				t.Errorf("in a container that starts meanwhile: %s", got)
			}
			in.Objects.Partial = false
			if err := f.Refresh(t.Context(), in); err != nil {
				t.Error(err)
			}
			if got := shown(t, dir); got != "" {
				t.Errorf("when it is gone: %s", got)
			}
		})
	}
}

// TestOutdatedBesideDownward: only what ConfigMaps and Secrets fill counts.
func TestOutdatedBesideDownward(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	sources := []v1.VolumeProjection{
		{Secret: &v1.SecretProjection{LocalObjectReference: ref("m"), Items: []v1.KeyToPath{{Key: "k", Path: "s/k"}}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}, Mode: new(int32(0o600))},
		}}},
	}
	p := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}})
	p.Labels = map[string]string{"a": "b"}
	key := func(value string) pod.Objects { return objects(nil, map[string][]byte{"k": []byte(value)}) }
	if got, err := Outdated(f.dirs(), p, key("1")); err != nil || got != nil {
		t.Errorf("not written yet: %v, %v", got, err)
	}
	f.fill(t, pod.Inside{Pod: p, Objects: key("1")})
	for value, want := range map[string][]string{"1": nil, "2": {"v"}, "longer": {"v"}} {
		if got, err := Outdated(f.dirs(), p, key(value)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", value, got, err, want)
		}
	}
}

// TestSwaps: a reader that resolves ..data once sees one complete content, however often it is
// replaced meanwhile. The volume is a Secret because memory is fast.
func TestSwaps(t *testing.T) {
	needRoot(t)
	const swaps = 10000
	f := newFixture(t)
	both := func(text string) pod.Objects {
		return objects(nil, map[string][]byte{"a": []byte(text), "b": []byte(text)})
	}
	secret := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "m"}}}
	in := pod.Inside{Pod: podWith(secret), Objects: both("0")}
	dir, _ := f.fill(t, in)
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		whole := 0
		for {
			select {
			case <-stop:
				if whole == 0 {
					done <- errors.New("nothing was read whole")
				}
				done <- nil
				return
			default:
			}
			root, err := os.OpenRoot(filepath.Join(dir, "..data"))
			if err != nil {
				if !errors.Is(err, os.ErrNotExist) {
					done <- err
					return
				}
				continue
			}
			a, errA := root.ReadFile("a")
			b, errB := root.ReadFile("b")
			root.Close()
			if errA != nil || errB != nil {
				continue // replaced and removed meanwhile; never half
			}
			whole++
			if string(a) != string(b) {
				done <- fmt.Errorf("a mix: %s and %s", a, b)
				return
			}
		}
	}()
	for i := range swaps {
		in.Objects = both(fmt.Sprint(i + 1))
		if err := f.Refresh(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := shown(t, dir); !strings.HasPrefix(got, `a 644 "10000"`) {
		t.Error(got)
	}
}

// TestCutOff: whatever an interrupted update left, the next one repairs it.
func TestCutOff(t *testing.T) {
	f := newFixture(t)
	in := pod.Inside{Pod: podWith(configMap()), Objects: objects(map[string]string{"a": "1"}, nil)}
	dir, want := f.fill(t, in)
	for name, cut := range map[string]func() error{
		"half a directory": func() error {
			return errors.Join(os.Mkdir(dir+"/..2020_x", 0o755), os.WriteFile(dir+"/..2020_x/a", []byte("half"), 0o644))
		},
		"a fresh link":       func() error { return os.Symlink("..2020_x", dir+"/..data_tmp") },
		"a name without end": func() error { return os.Symlink("..data/old", dir+"/old") },
		"no name":            func() error { return os.Remove(dir + "/a") },
		"a foreign name":     func() error { return errors.Join(os.Remove(dir+"/a"), os.WriteFile(dir+"/a", nil, 0o644)) },
		"changed content":    func() error { return os.WriteFile(dir+"/..data/a", []byte("changed"), 0o644) },
		"no content": func() error {
			to, err := os.Readlink(dir + "/..data")
			return errors.Join(err, os.RemoveAll(filepath.Join(dir, to)))
		},
		"content elsewhere": func() error { return errors.Join(os.Remove(dir+"/..data"), os.Symlink("/etc", dir+"/..data")) },
	} {
		if err := cut(); err != nil {
			t.Fatal(err)
		}
		if _, got := f.fill(t, in); got != want {
			t.Errorf("%s: %s", name, got)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	}
}

func TestGroup(t *testing.T) {
	needRoot(t)
	p := podWith(configMap(func(s *v1.ConfigMapVolumeSource) { s.DefaultMode = new(int32(0o400)) }))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
	dir, got := newFixture(t).fill(t, pod.Inside{Pod: p, Objects: objects(map[string]string{"a": "1"}, nil)})
	if !strings.HasPrefix(got, `a 440 "1"`) {
		t.Error(got)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o777 {
		t.Errorf("%s: %v, %v", dir, info.Mode(), err)
	}
	for _, path := range []string{dir, dir + "/..data/", dir + "/..data/a"} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Gid != 4242 {
			t.Errorf("%s belongs to group %d, %v", path, st.Gid, err)
		}
	}
}

// TestRootsGroup: what is made in an emptyDir of the group 0 belongs to it, too.
func TestRootsGroup(t *testing.T) {
	needRoot(t)
	p := podWith(emptyDir("v"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(0))}
	dir := newFixture(t).mustSetup(t, p, mounting(v1.VolumeMount{Name: "v", MountPath: "/v"}))
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o777 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestFileKeysOpenNoDevice: a container has put a device node, which has no driver, where variables
// are read.
func TestFileKeysOpenNoDevice(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir := f.dirs().Revision("u1").EmptyDir("v")
	if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mknod(dir+"/vars", unix.S_IFCHR|0o666, int(unix.Mkdev(511, 1<<19-1)))); err != nil {
		t.Fatal(err)
	}
	_, err := f.Files(podWith(emptyDir("v")), []pod.FileKey{{Volume: "v", Path: "vars"}})
	if !errors.Is(err, sys.ErrNotRegular) {
		t.Errorf("it was opened: %v", err)
	}
}

func TestFileKeys(t *testing.T) {
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	dir := layout.Dirs{Root: f.root}.Revision("u1").EmptyDir("v")
	outside := filepath.Join(t.TempDir(), "secret")
	err := errors.Join(os.MkdirAll(dir+"/sub", 0o755), os.WriteFile(dir+"/sub/vars", []byte("A='1'\n"), 0o644), os.WriteFile(outside, nil, 0o644),
		os.Symlink(outside, dir+"/out"), os.WriteFile(dir+"/long", make([]byte, maxFileKey+1), 0o644), unix.Mkfifo(dir+"/pipe", 0o644))
	if err != nil {
		t.Fatal(err)
	}
	key := func(path string) pod.FileKey { return pod.FileKey{Volume: "v", Path: path} }
	got, err := f.Files(p, []pod.FileKey{key("sub/vars"), key("/sub/vars"), key("none")})
	if err != nil || len(got) != 2 || got[key("sub/vars")] != "A='1'\n" {
		t.Errorf("%v, %v", got, err)
	}
	// One file by many names is as much memory as many files.
	if err := os.WriteFile(dir+"/large", make([]byte, maxFileKey), 0o644); err != nil {
		t.Fatal(err)
	}
	var many []pod.FileKey
	for i := range 5 {
		name := fmt.Sprint("link", i)
		if err := os.Link(dir+"/large", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		many = append(many, key(name), key(name))
	}
	if got, err := f.Files(p, many[:8]); err != nil || len(got) != 4 {
		t.Errorf("four files, each twice: %d, %v", len(got), err)
	}
	if _, err := f.Files(p, many); err == nil || !strings.Contains(err.Error(), "together") {
		t.Errorf("too much together: %v", err)
	}
	for _, path := range []string{"out", "long", "pipe", "sub", "../../../x"} {
		if got, err := f.Files(p, []pod.FileKey{key(path)}); err == nil {
			t.Errorf("%s: %q", path, got)
		}
	}
}
