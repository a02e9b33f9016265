package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPurgeUsesPodrunsRecords: a purge stops the pods where they run, also if the settings do not say where that is, as
// when a drop-in of the unit has set the directories. If it cannot, it names the podrun that is still there.
func TestPurgeUsesPodrunsRecords(t *testing.T) {
	t.Parallel()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip(err)
	}
	const print = "#!/bin/sh\necho $* in $PODRUN_ROOT_DIR $PODRUN_RUN_DIR $PODRUN_CONTAINERD_NAMESPACE $PODRUN_CONTAINERD_ADDRESS\n"
	for name, c := range map[string]struct {
		files map[string]string // @ is the package's root
		exit  string
		want  string
	}{
		"no record": {map[string]string{"var/lib/podrun/pods/a": ""}, "", "down --all in @/var/lib/podrun @/run/podrun\n"},
		"nothing":   {map[string]string{"srv/pods/a": ""}, "", ""},
		"the run directory's": {
			map[string]string{"srv/pods/a": "", "run/podrun/place": string(boot) + "ns\nembedded\n@/srv\n"}, "",
			"down --all in @/srv @/run/podrun ns embedded\n",
		},
		"beside what is left of earlier pods": {
			map[string]string{"srv/pods/a": "", "var/lib/podrun/pods/b": "", "run/podrun/place": string(boot) + "ns\n/c.sock\n@/srv\n"}, "",
			"down --all in @/srv @/run/podrun ns /c.sock\n",
		},
		"the root directory's": {
			map[string]string{
				"var/lib/podrun/pods/a": "", "var/lib/podrun/run-dir": "@/r\n",
				"r/place": string(boot) + "ns\nembedded\n@/var/lib/podrun\n",
			}, "", "down --all in @/var/lib/podrun @/r ns embedded\n",
		},
		"of an earlier boot": {
			map[string]string{"srv/pods/a": "", "run/podrun/place": "boot\nns\n/gone.sock\n@/srv\n"}, "",
			"down --all in @/srv @/run/podrun\n",
		},
		"cut off": {
			map[string]string{"var/lib/podrun/pods/a": "", "run/podrun/place": string(boot) + "ns\nembedded"}, "",
			"down --all in @/var/lib/podrun @/run/podrun\n",
		},
		"of the machine, not of this root": {
			map[string]string{"var/lib/podrun/pods/a": "", "run/podrun/place": "boot\nns\nembedded\n/var/lib\n"}, "",
			"down --all in @/var/lib/podrun @/run/podrun\n",
		},
		"pods that cannot be stopped": {
			map[string]string{"srv/pods/a": "", "run/podrun/place": string(boot) + "ns\nembedded\n@/srv\n"}, "exit 1\n",
			"podrun is @/usr/lib/podrun/podrun now, with --root-dir @/srv --run-dir @/run/podrun\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			c.files["usr/lib/podrun/podrun"] = print + c.exit
			for path, text := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "@", root)), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			purge := exec.Command("sh", "../packaging/postremove.sh", "purge")
			purge.Env = []string{"PATH=" + os.Getenv("PATH"), "DPKG_ROOT=" + root}
			out, err := purge.CombinedOutput()
			got := strings.ReplaceAll(string(out), root, "@")
			got, _, _ = strings.Cut(got, "volumes, images and records")
			if (err == nil) != (c.exit == "") || !strings.HasSuffix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%v: %s, want %s", err, got, c.want)
			}
		})
	}
}
