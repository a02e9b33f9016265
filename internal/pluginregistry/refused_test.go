package pluginregistry

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/test"
)

// TestRefused: what cannot be registered is written down, with the reason, as long as that is so.
func TestRefused(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "refused.json")
	if all, err := ReadRefused(file); len(all) > 0 || err != nil {
		t.Errorf("before there is a file: %v, %v", all, err)
	}
	test.Must(t, os.WriteFile(file, []byte(`[{"socket": "/former", "error": "e"}]`), 0o600))
	h := &handler{calls: make(chan string, 99), fails: errors.New("not yet")}
	r := New(Options{
		Dir: dir, File: file, Handlers: map[string]Handler{"DevicePlugin": h}, Log: slog.New(slog.DiscardHandler),
	})
	strange, late := filepath.Join(dir, "a.sock"), filepath.Join(dir, "b.sock")
	begin(t, strange, &registration.PluginInfo{Type: "Strange", Name: "a"})
	begin(t, late, &registration.PluginInfo{Type: "DevicePlugin", Name: "b", SupportedVersions: []string{"v1beta1"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	want := func(want ...Refused) {
		t.Helper()
		var all []Refused
		for range 1000 {
			var err error
			if all, err = ReadRefused(file); err == nil && slices.Equal(all, want) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("got %v, want %v", all, want)
	}
	refused := Refused{strange, `the plugin cannot be used: podrun has no plugins of the type "Strange"`}
	want(refused, Refused{late, "not yet"})
	want(refused) // it was tried again
	test.Must(t, os.Remove(strange))
	want()
	cancel()
	<-ended
	want()
}
