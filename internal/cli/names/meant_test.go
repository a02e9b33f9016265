package names

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"podrun.io/podrun/internal/agent/problems"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// TestMeant: a name that is no pod's but a workload's is answered with what the command would accept.
func TestMeant(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	const saved = `[{"kind": "Deployment", "namespace": "default", "name": "web", "pods": ["web-0-n", "web-1-n"]},
		{"kind": "Deployment", "namespace": "shop", "name": "api"}, {"kind": "Job", "namespace": "shop", "name": "api"},
		{"kind": "CronJob", "namespace": "default", "name": "nightly"}]`
	if err := os.WriteFile(filepath.Join(dirs.Run, "workloads.json"), []byte(saved), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, namespace, name, want string }{
		{"podrun logs", "default", "web", "deployment/web is a Deployment: podrun logs deployment/web"},
		{"podrun cp", "default", "web", "deployment/web is a Deployment whose pods are web-0-n, web-1-n"},
		{"podrun logs", "shop", "web", "former"},
		{"podrun restart", "shop", "api", "deployment/api is a Deployment: podrun restart deployment/api -n shop; " +
			"job/api is a Job that has no pods now"},
		{"podrun describe", "default", "nightly", "cronjob/nightly is a CronJob: podrun describe cronjob/nightly"},
		{"podrun logs", "default", "nightly", "cronjob/nightly is a CronJob: podrun get jobs lists its Jobs"},
	} {
		notFound := &query.NotFoundError{Namespace: c.namespace, Name: c.name}
		err := fmt.Errorf("wrapped: %w", &cli.Error{Code: cli.ExitFailed, Err: notFound, Hint: "former"})
		var failed *cli.Error
		if !errors.As(Meant(dirs, c.command, err), &failed) || failed.Hint != c.want {
			t.Errorf("%s %s -n %s: got %q, want %q", c.command, c.name, c.namespace, failed.Hint, c.want)
		}
	}
}

// TestMeantInvalid: a pod of which there is nothing but an invalid manifest is not just unknown.
func TestMeantInvalid(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	unreadable := manifest.Problem{Origin: manifest.Origin{Path: "/etc/pods/b.yaml"}, Err: errors.New("no YAML")}
	invalid := manifest.Problem{
		Origin: manifest.Origin{Path: "/etc/pods/a.yaml"}, Key: pod.Key{Namespace: "default", Name: "web-n"}, Err: errors.New("no image"),
	}
	served := manifest.Problem{Origin: manifest.Origin{Path: "http://h/"}, Err: errors.New("404")}
	must(os.WriteFile(dirs.StatusFiles().Serve(), []byte(`{"node-name": ["n"]}`), 0o600))
	own, perhaps := "its manifest is invalid: podrun validate /etc/pods/a.yaml", "a manifest is invalid, perhaps that of the pod: podrun validate /etc/pods/b.yaml"
	for _, c := range []struct {
		problems                      []manifest.Problem
		namespace, name, former, want string
	}{
		{[]manifest.Problem{served, unreadable, invalid}, "default", "web", "former", own},
		{[]manifest.Problem{invalid}, "default", "web-n", "", own},
		{[]manifest.Problem{invalid}, "default", "we", "former", "former"},
		{[]manifest.Problem{invalid}, "shop", "web", "", ""},
		{[]manifest.Problem{served, unreadable, invalid}, "default", "other", "", perhaps},
		{[]manifest.Problem{unreadable}, "default", "other", "former", "former"},
		{[]manifest.Problem{served}, "default", "web", "", ""},
	} {
		must(problems.NewFile(dirs.StatusFiles().ManifestProblems()).Write(c.problems))
		err := Meant(dirs, "podrun logs", &cli.Error{Err: &query.NotFoundError{Namespace: c.namespace, Name: c.name}, Hint: c.former})
		var failed *cli.Error
		if !errors.As(err, &failed) || failed.Hint != c.want {
			t.Errorf("%s/%s: got %q, want %q", c.namespace, c.name, failed.Hint, c.want)
		}
	}
}
