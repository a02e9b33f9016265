package oci

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	v1 "k8s.io/api/core/v1"
)

// FuzzImageConfig builds the spec of a container with an arbitrary image config. The config
// determines the process and nothing of the machine: the rest of the spec is as without it.
func FuzzImageConfig(f *testing.F) {
	f.Add([]byte(`{"config":{"User":"7:8","Env":["PATH=/bin","A=1","A=2","=","B"],"Entrypoint":["/a"],"Cmd":["b"],"WorkingDir":"../../w",
		"Volumes":{"/data":{}},"Labels":{"io.containerd.runc.v2.group":"x"},"StopSignal":"SIGKILL","ArgsEscaped":true}}`))
	f.Add([]byte(`{"config":{"Entrypoint":[""],"Cmd":null,"Env":null}}`))
	f.Add([]byte(`{"config":{"User":"root","Entrypoint":["/a"]}}`))
	f.Add([]byte(`{"config":{"User":"99999999999999999999","Entrypoint":["/a"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var of imagespec.Image
		if json.Unmarshal(text, &of) != nil {
			return
		}
		in := input(func(in *Input) { in.Image = of.Config })
		spec, err := Build(in)
		if err != nil {
			return
		}
		if !path.IsAbs(spec.Process.Cwd) || spec.Process.Cwd != path.Clean(spec.Process.Cwd) {
			t.Errorf("working directory %q", spec.Process.Cwd)
		}
		var names []string
		for _, kv := range spec.Process.Env {
			name, _, ok := strings.Cut(kv, "=")
			if !ok || slices.Contains(names, name) {
				t.Errorf("variables %q", spec.Process.Env)
			}
			names = append(names, name)
		}
		if len(spec.Process.Env) > len(of.Config.Env)+2+len(in.Env) {
			t.Errorf("variables of nobody's: %q", spec.Process.Env)
		}
		plain := input(func(in *Input) { in.Image = imagespec.ImageConfig{Entrypoint: []string{"/a"}} })
		want, err := Build(plain)
		if err != nil {
			t.Fatal(err)
		}
		spec.Process.Args, spec.Process.Env, spec.Process.Cwd = want.Process.Args, want.Process.Env, want.Process.Cwd
		if got, want := marshal(t, spec), marshal(t, want); got != want {
			t.Errorf("an image changes more than its process:\n%s\nis not\n%s", got, want)
		}
		// Only a number that a user other than root can have satisfies runAsNonRoot.
		in.Container.SecurityContext = &v1.SecurityContext{RunAsNonRoot: new(true)}
		owner, _, _ := strings.Cut(of.Config.User, ":")
		number, wrong := strconv.ParseUint(owner, 10, 32)
		if _, err := Build(in); err == nil && (wrong != nil || number == 0) {
			t.Errorf("runAsNonRoot takes the user %q", of.Config.User)
		}
	})
}

func marshal(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
