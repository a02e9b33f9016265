package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// TestPackagesOfLaterCommitsAreNewer: dpkg orders the versions of packages as their commits: those of one day, whatever
// the time zones, and those before, at and after a tag.
func TestPackagesOfLaterCommitsAreNewer(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"git", "dpkg"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	run := func(line string) string {
		t.Helper()
		c := exec.Command("sh", "-ec", line)
		c.Dir = dir
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		for _, who := range []string{"AUTHOR", "COMMITTER"} {
			c.Env = append(c.Env, "GIT_"+who+"_NAME=n", "GIT_"+who+"_EMAIL=n@example.com")
		}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	script, err := filepath.Abs("../scripts/version.sh")
	if err != nil {
		t.Fatal(err)
	}
	run("git init -q . && mkdir scripts && cp " + script + " scripts")
	last := "0.0.0~20261130.ffffffffffff" // in the form of earlier ones
	for i, at := range []string{
		"2026-11-30T09:00:00+0000", "2026-11-30T09:00:01+0000", "2026-11-30T21:00:00+1000", "2026-11-30T11:30:00-0100",
		"2026-12-01T00:00:00+0000", "tag", "2026-12-01T00:00:01+0000", "2026-12-01T00:00:02+0000",
	} {
		if at == "tag" {
			run("git tag v0.1.0")
		} else {
			run("GIT_COMMITTER_DATE=" + at + " git commit -q --allow-empty -m " + at)
		}
		version := run("scripts/version.sh")
		deb := strings.TrimPrefix(strings.Replace(version, "-", "~", 1), "v") // as nfpm does
		if err := exec.Command("dpkg", "--compare-versions", last, "lt", deb).Run(); err != nil {
			t.Errorf("%d, %s: %s is not newer than %s", i, at, deb, last)
		}
		last = deb
	}
}

// TestVMsNeedATest: make vm RUN=… with a name that no test has fails, before it builds anything.
func TestVMsNeedATest(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("virtual machines are for root")
	}
	out, err := exec.Command("../scripts/vm.sh", "", "TestTypo/case").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no test of ./vm has a name like TestTypo/case") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPackageHasWhatItsDocumentsLinkTo: links between documents lead somewhere in the package too.
func TestPackageHasWhatItsDocumentsLinkTo(t *testing.T) {
	t.Parallel()
	nfpm, err := os.ReadFile("../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("documents: %v, %v", docs, err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	installed := regexp.MustCompile(`dst: /usr/share/doc/podrun/([^,}]+)`).FindAllStringSubmatch(string(nfpm), -1)
	for _, doc := range append(docs, "../README.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, err := filepath.Rel("..", filepath.Join(filepath.Dir(doc), m[1]))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(installed, func(dst []string) bool {
				return dst[1] == target || strings.HasSuffix(dst[1], "/") && strings.HasPrefix(target+"/", dst[1])
			}) {
				t.Errorf("%s links to %s, which the package does not have", doc, target)
			}
		}
	}
}
