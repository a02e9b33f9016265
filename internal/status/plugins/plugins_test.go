package plugins

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// TestList: what serve has written down of plugins, with who has which device, and since when a plugin is gone.
func TestList(t *testing.T) {
	dir := t.TempDir()
	dirs := layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run")}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := List(dirs); err != nil || len(all) > 0 {
		t.Errorf("without plugins: %+v, %v", all, err)
	}
	write(dirs.SandboxFiles().Plugins(), `{
		"example.com/gone": {"socket": "/s/gone", "connected": false, "lost": "2026-01-02T03:04:05Z", "devices": {"z": {"healthy": false}}},
		"example.com/gpu": {"socket": "/s/gpu", "connected": true, "registrations": 3, "devices": {"a": {"healthy": true}, "b": {"healthy": false}}}}`)
	write(filepath.Join(dirs.SandboxFiles().Devices(), "sandbox"), `{"devices": {"example.com/gpu": ["b", "c"]}, "plugins": {"example.com/gpu": {}}}`)
	write(filepath.Join(dirs.SandboxFiles().Devices(), "released"), `{"devices": {"example.com/gpu": ["a"]}, "plugins": {"example.com/gpu": {}}}`)
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "web", "u1"
	c := &checkpoint.Checkpoint{Version: checkpoint.Version, Owner: "serve", Pod: p, Sequence: 1, Sandboxes: []pod.Sandbox{{ID: "sandbox"}}}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	write(dirs.Revision("u1").Checkpoint(), string(text))
	if got, err := checkpoint.NewStore(dirs, slog.New(slog.DiscardHandler)).List(); err != nil || len(got) != 1 {
		t.Fatalf("checkpoints: %+v, %v", got, err)
	}
	write(layout.CSIDrivers(dirs), `[{"name": "csi.example.com", "socket": "/s/csi", "connected": true, "nodeID": "n"}]`)
	for name, text := range map[string]string{
		"u1_data.json": `{"driver": "csi.example.com", "id": "h", "uid": "u1", "volume": "data", "published": true}`,
		"u2_data.json": `{"driver": "lost.example.com", "id": "i", "uid": "u2", "volume": "data", "released": true}`,
	} {
		write(filepath.Join(layout.CSIVolumes(dirs), name), text)
	}
	all, err := List(dirs)
	if err != nil || len(all) != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	damaged := filepath.Join(layout.CSIVolumes(dirs), "u3_data.json")
	write(damaged, `{"driver":`) // the others are listed
	if all, err = List(dirs); err == nil || !strings.Contains(err.Error(), damaged) || len(all) != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	gone, gpu, csi, lost := all[0], all[1], all[2], all[3]
	if gone.Status != Disconnected || !gone.Since.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || gone.Healthy() != 0 {
		t.Errorf("%+v", gone)
	}
	if gpu.Status != Connected || !gpu.Since.IsZero() || gpu.Healthy() != 1 || gpu.Used() != 2 || gpu.Registrations != 3 || gpu.Devices[1].Pod != "default/web" {
		t.Errorf("%+v", gpu)
	}
	if len(gpu.Unlisted) != 1 || gpu.Unlisted[0].ID != "c" || gpu.Unlisted[0].Pod != "default/web" || len(gpu.Pods()) != 1 {
		t.Errorf("what it does not list any more: %+v", gpu)
	}
	if csi.Status != Connected || len(csi.Volumes) != 1 || csi.Volumes[0].Status != Published {
		t.Errorf("%+v", csi)
	}
	if lost.Status != Disconnected || len(lost.Volumes) != 1 || lost.Volumes[0].Status != Unpublishing || len(lost.Pods()) != 0 || len(csi.Pods()) != 1 {
		t.Errorf("%+v", lost)
	}
}
