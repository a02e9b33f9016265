package manifest

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// hostile are names that a path must not be made of.
var hostile = []string{
	"..", ".", "/", "../..", "../../etc", "/etc/cron.d/x", "a/b", "a/../../b", "a\x00b", "a\nb", "..%2f", "-", ".hidden", "a_b", " ", "~",
	"$(id)", "a..b", strings.Repeat("a", 300), "\u2024\u2024/\u2024", "C:\\x",
}

// paths are all that are made of a pod's own words.
func paths(d layout.Dirs, p *v1.Pod) []string {
	key := pod.KeyOf(p)
	all := []string{d.Pod(p.UID), d.Legacy().Manifest(p.UID), d.Revision(p.UID).Etc(), d.PodLogs(key, p.UID), d.StatusFiles().Pod(key)}
	for _, c := range p.Spec.Containers {
		all = append(all, d.Revision(p.UID).RawLog(c.Name, "id"), d.ContainerLog(key, p.UID, c.Name, 0))
	}
	for _, v := range p.Spec.Volumes {
		all = append(all, d.Revision(p.UID).EmptyDir(v.Name))
	}
	return all
}

// No name in a manifest makes a path that leaves podrun's directories or leads into those of
// another pod.
func TestNoNameLeadsOutside(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: "/root-dir", Run: "/run-dir", Log: "/log-dir"}
	above := []string{dirs.Pods(), dirs.StatusFiles().Dir(), dirs.Legacy().Etcs(), dirs.Log}
	set := map[string]func(p *v1.Pod, s string){
		"name":      func(p *v1.Pod, s string) { p.Name = s },
		"namespace": func(p *v1.Pod, s string) { p.Namespace = s },
		"uid":       func(p *v1.Pod, s string) { p.UID = pod.UID(s) },
		"container": func(p *v1.Pod, s string) { p.Spec.Containers[0].Name = s },
		"volume":    func(p *v1.Pod, s string) { p.Spec.Volumes[0].Name = s },
	}
	for field, to := range set {
		accepted := 0
		for _, s := range append([]string{"good", "good-2"}, hostile...) {
			p := &v1.Pod{}
			p.APIVersion, p.Kind, p.Name, p.Namespace, p.UID = "v1", "Pod", "web", "ns", "u1"
			p.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}}
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
			to(p, s)
			text, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := Load(text, LoadOptions{Origin: Origin{SourceFile, "/m/a.json"}, NodeName: "n"})
			if err != nil {
				continue
			}
			accepted++
			for _, path := range paths(dirs, loaded.Pods[0]) {
				inside := false
				for _, dir := range above {
					rel, err := filepath.Rel(dir, path)
					inside = inside || err == nil && rel != "." && !strings.HasPrefix(rel, "..") && filepath.Clean(path) == path
				}
				if !inside || strings.Contains(path, "\x00") || strings.Contains(path, "\n") || len(filepath.Base(path)) > 255 {
					t.Errorf("%s %q leads to %q", field, s, path)
				}
			}
			if field != "uid" && filepath.Dir(dirs.PodLogs(pod.KeyOf(loaded.Pods[0]), loaded.Pods[0].UID)) != dirs.Log {
				t.Errorf("%s %q: logs are not in a directory of their own", field, s)
			}
		}
		if accepted < 2 || accepted > 6 {
			t.Errorf("%s: %d of the names were accepted", field, accepted)
		}
	}
}
