package flags

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint/layout"
)

// options parses the flags of Sources as a command with args does that asks the serve of dirs, if ask is true.
func options(t *testing.T, dirs layout.Dirs, ask bool, args ...string) (agent.Options, error) {
	t.Helper()
	var s Sources
	var unlike error
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.Add(f)
	o := agent.Options{Dirs: dirs}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(f.Parse(args))
	if ask {
		unlike = AdoptServe(f, dirs)
	}
	must(s.Options(f, &o))
	return o, unlike
}

// TestSettingsOfServe: a command that asks serve reads the manifests as serve does.
func TestSettingsOfServe(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs("m")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(args ...string) layout.Dirs {
		dirs := layout.Dirs{Run: t.TempDir()}
		o, _ := options(t, dirs, false, args...)
		if err := o.Settings.Save(dirs); err != nil {
			t.Fatal(err)
		}
		return dirs
	}
	dirs := serve("--manifests=m", "--manifests=exec:make pods", "--node-name=Edge", "--no-node-suffix", "--pod-security=baseline")
	if info, err := os.Stat(dirs.StatusFiles().Serve()); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	o, unlike := options(t, dirs, true)
	if !reflect.DeepEqual(o.Sources.Manifests, []string{here, "exec:make pods"}) || o.NodeName != "edge" || !o.Sources.NoSuffix ||
		o.Sources.Policy == nil || o.Sources.Default || unlike != nil {
		t.Errorf("as serve: %+v, %v", o, unlike)
	}
	if _, ok, err := AsServe(agent.Options{Dirs: dirs}); ok || err != nil {
		t.Errorf("a command is run: %v", err)
	}
	o, _ = options(t, dirs, true, "-f", "new", "--no-node-suffix=false")
	if !reflect.DeepEqual(o.Sources.Manifests, []string{"new"}) || o.NodeName != "edge" || o.Sources.NoSuffix {
		t.Errorf("other manifests: %+v", o)
	}

	dirs = serve("--manifest-url=http://pods.example", "--manifest-url-header=A: secret", "--node-name=n")
	text, err := os.ReadFile(dirs.StatusFiles().Serve())
	if want := `{"manifest-url":["http://pods.example"],"manifest-url-header":[""],"node-name":["n"]}`; string(text) != want || err != nil {
		t.Errorf("saved %s, %v", text, err)
	}
	if o, unlike = options(t, dirs, true); o.Sources.URL != "http://pods.example" || !o.Sources.Default || unlike == nil {
		t.Errorf("of a URL: %+v, %v", o, unlike)
	}
	if _, unlike = options(t, dirs, true, "--manifest-url-header=A: secret"); unlike != nil {
		t.Errorf("with its headers: %v", unlike)
	}

	none := layout.Dirs{Run: t.TempDir()}
	if o, unlike = options(t, none, true); !reflect.DeepEqual(o.Sources.Manifests, []string{"/etc/pods"}) || unlike != nil {
		t.Errorf("no serve ran: %+v, %v", o, unlike)
	}
	if err := (sources.Settings{"pod-security": {"baseline"}}).Save(none); err != nil {
		t.Fatal(err)
	}
	if o, ok, err := AsServe(agent.Options{Dirs: none}); !ok || err != nil || o.Sources.Policy == nil {
		t.Errorf("as serve: %+v, %t, %v", o, ok, err)
	}
}

// TestHasPlugins: whether plugins can register with serve is known to other commands.
func TestHasPlugins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want bool
	}{{nil, false}, {[]string{"--plugins"}, true}, {[]string{"--plugins=false"}, false}} {
		var s Sources
		f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		s.Add(f)
		f.Bool("plugins", false, "")
		if err := f.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		dirs := layout.Dirs{Run: t.TempDir()}
		if HasPlugins(dirs) {
			t.Error("no serve has run")
		}
		if err := s.settings(f, "n").Save(dirs); err != nil {
			t.Fatal(err)
		}
		if got := HasPlugins(dirs); got != c.want {
			t.Errorf("%v: %v", c.args, got)
		}
	}
}

// TestServed: what serve reads, and whether it is strict there, is known; that validate is strict elsewhere is the
// user's to say.
func TestServed(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}
	is := func(path string, reads, strict bool) {
		t.Helper()
		if r, s := Served(dirs)(path); r != reads || s != strict {
			t.Errorf("%s: read %v, strict %v", path, r, s)
		}
	}
	is("/etc/pods", true, false)
	is("/etc/pods/web.yaml", true, false)
	is("/etc/podsecurity.yaml", false, false)
	if err := os.MkdirAll(dirs.StatusFiles().Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (sources.Settings{"manifests": {"/srv/a", "/srv/b.yaml"}, strictPermissions: {"true"}}).Save(dirs); err != nil {
		t.Fatal(err)
	}
	is("/srv/a/web.yaml", true, true)
	is("/srv/b.yaml", true, true)
	is("/etc/pods/web.yaml", false, false)
	var l Loading
	f := pflag.NewFlagSet("validate", pflag.ContinueOnError)
	l.AddToValidate(f)
	if err := AdoptServe(f, dirs); err != nil || l.strictPermissions {
		t.Errorf("validate is strict everywhere: %v", err)
	}
}
