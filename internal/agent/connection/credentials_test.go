package connection

import (
	"os/user"
	"path/filepath"
	"testing"
)

// TestCredentialsOfAService: systemd gives a service no HOME.
func TestCredentialsOfAService(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", "")
	t.Setenv("HOME", "")
	if got := (Options{}).credentials(); got.Path != filepath.Join(me.HomeDir, ".docker/config.json") || !got.Optional {
		t.Errorf("%+v", got)
	}
	t.Setenv("HOME", "/elsewhere")
	if got := (Options{}).credentials(); got.Path != "/elsewhere/.docker/config.json" {
		t.Errorf("%+v", got)
	}
}
