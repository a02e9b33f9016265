package plugins

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/sys"
)

// TestEndpoints checks that a plugin that registers by a socket of its own may only be called below the directory.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	dir, elsewhere := filepath.Join(t.TempDir(), "kubelet"), t.TempDir()
	c, err := Open(Options{Dir: dir, File: filepath.Join(elsewhere, "remembered.json"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Cleanup(func() { _ = sys.Unmount(dir) }) // it is mounted on itself, unless it is on a shared mount
	for _, at := range []string{filepath.Join(elsewhere, "gpu.sock"), dir + "-2"} {
		l, err := net.Listen("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := devicePlugins{c.manager, dir}
	for endpoint, below := range map[string]bool{
		filepath.Join(elsewhere, "gpu.sock"): false, dir + "-2": false, "gpu.sock": false, "": false,
		dir + "/device-plugins/../../../001/gpu.sock": false,
		// They pass this check, and are no sockets.
		dir: true, dir + "/file": true, dir + "/device-plugins//../file": true,
	} {
		err := d.Register(t.Context(), "example.com/gpu", endpoint, []string{v1beta1.Version})
		refused := errors.Is(err, pluginregistry.ErrRefused) && strings.Contains(err.Error(), "is not below "+dir)
		if err == nil || refused == below {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
