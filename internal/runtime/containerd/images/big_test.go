package images_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/test/testimage"
)

// TestBigConfig checks that an image whose config is too big is refused in every way, which includes
// an image that containerd already has. The image can be listed and removed.
func TestBigConfig(t *testing.T) {
	d := daemontest.Embedded(t)
	s := connect(t, d)
	refused := func(how string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "its config is too big") || len(err.Error()) > 500 {
			t.Errorf("%s: %.500v", how, err)
		}
	}
	load := func(how string, opts ...testimage.Option) (path string) {
		path = daemontest.Archive(t, "big:1", append(opts, testimage.Env("A="+strings.Repeat("x", 5<<20)))...)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = s.Load(t.Context(), f)
		refused(how, err)
		return path
	}
	path := load("an OCI archive")
	load("a Docker archive", testimage.DockerArchive())

	ctx, c := d.Client(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := c.Import(ctx, f); err != nil { // not by podrun
		t.Fatal(err)
	}
	_, err = s.Resolve(t.Context(), "big:1")
	refused("containerd has it", err)
	if all, err := s.ListImages(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := s.RemoveImage(t.Context(), "big:1", false); err != nil {
		t.Error(err)
	}
}

// TestLongNames checks that an image with an endless USER or STOPSIGNAL is refused, and that the
// error does not repeat it.
func TestLongNames(t *testing.T) {
	s := connect(t, daemontest.Embedded(t))
	for name, opt := range map[string]func(string) testimage.Option{
		"USER": testimage.User, "STOPSIGNAL": testimage.StopSignal,
	} {
		f, err := os.Open(daemontest.Archive(t, "long:1", opt(strings.Repeat("x", 100_000))))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Load(t.Context(), f)
		if err = errors.Join(err, f.Close()); err == nil || !strings.Contains(err.Error(), "its "+name+" has 100000 characters") || len(err.Error()) > 500 {
			t.Errorf("%.500v", err)
		}
	}
}

// TestMiddlingConfig uses an image whose config is not kept in memory.
func TestMiddlingConfig(t *testing.T) {
	s := connect(t, daemontest.Embedded(t))
	daemontest.Load(t, s, daemontest.Archive(t, "middling:1", testimage.Env("A="+strings.Repeat("x", 200_000))))
	found, err := s.Resolve(t.Context(), "middling:1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := s.FindImage(t.Context(), found)
	if err != nil || len(image.Config.Env) != 2 || len(image.Config.Env[1]) != 200_002 {
		t.Errorf("%v", err)
	}
}
