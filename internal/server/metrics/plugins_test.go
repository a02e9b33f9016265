package metrics

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"podrun.io/podrun/internal/status/plugins"
)

// TestPlugins: device plugins with their devices, and CSI drivers with their volumes.
func TestPlugins(t *testing.T) {
	t.Parallel()
	m := New(slog.New(slog.DiscardHandler))
	m.Watch(machine{plugins: []plugins.Plugin{
		{Name: "example.com/gpu", Type: "DevicePlugin", Status: plugins.Connected, Registrations: 2, Devices: []plugins.Device{
			{ID: "a", Healthy: true, Pod: "default/web"}, {ID: "b", Healthy: true}, {ID: "c"},
		}},
		{Name: "csi.example.com", Type: plugins.CSI, Status: plugins.Disconnected, Volumes: []plugins.Volume{
			{Status: plugins.Published}, {Status: plugins.Published}, {Status: plugins.Unpublishing},
		}},
	}})
	wantLines(t, scrape(t, m),
		`podrun_plugin_connected{name="example.com/gpu",type="DevicePlugin"} 1`,
		`podrun_plugin_connected{name="csi.example.com",type="CSIPlugin"} 0`,
		`podrun_plugin_devices{health="healthy",resource="example.com/gpu"} 2`,
		`podrun_plugin_devices{health="unhealthy",resource="example.com/gpu"} 1`,
		`podrun_plugin_devices_allocated{resource="example.com/gpu"} 1`,
		`podrun_plugin_volumes{driver="csi.example.com",state="publishing"} 0`,
		`podrun_plugin_volumes{driver="csi.example.com",state="published"} 2`,
		`podrun_plugin_volumes{driver="csi.example.com",state="unpublishing"} 1`,
		`kubelet_device_plugin_registration_total{resource_name="example.com/gpu"} 2`)
	m = New(slog.New(slog.DiscardHandler))
	m.Watch(machine{pluginsErr: errors.New("broken")})
	text := scrape(t, m) // only those of plugins are missing
	wantLines(t, text, "podrun_sources_ready 0")
	if strings.Contains(text, "podrun_plugin") {
		t.Errorf("of plugins: %s", text)
	}
}
