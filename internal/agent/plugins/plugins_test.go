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
	"podrun.io/podrun/internal/sys/own"
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

// TestPluginsDirOfAnother: no directory of plugins is used that another user could replace. What machines have is.
func TestPluginsDirOfAnother(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to others")
	}
	for name, c := range map[string]struct {
		do   func(dir, elsewhere string) error
		says string
	}{
		"nothing":       {func(string, string) error { return nil }, ""},
		"the kubelet's": {func(dir, _ string) error { return os.Chmod(dir, 0o755) }, ""},
		"another's":     {func(dir, _ string) error { return os.Chown(dir, 65534, 65534) }, "is owned by user 65534; chown root it"},
		"another's, for all": {func(dir, _ string) error {
			return errors.Join(os.Chmod(dir, 0o777), os.Chown(dir, 65534, 65534))
		}, "is owned by user 65534"},
		"for all, and used": {func(dir, _ string) error {
			at := filepath.Join(dir, "device-plugins")
			return errors.Join(os.Mkdir(at, 0o755), os.Chmod(at, 0o777), os.WriteFile(at+"/x", nil, 0o600), os.Chown(at+"/x", 1234, 1234))
		}, "device-plugins/x: is owned by user 1234"},
		"for all": {func(dir, _ string) error {
			at := filepath.Join(dir, "plugins_registry")
			return errors.Join(os.Mkdir(at, 0o755), os.Chmod(at, 0o777))
		}, ""},
		"a link to another's": {func(dir, elsewhere string) error {
			return errors.Join(os.Chown(elsewhere, 1234, 1234), os.Symlink(elsewhere, filepath.Join(dir, "plugins")))
		}, "is owned by user 1234"},
		"another's link": {func(dir, elsewhere string) error {
			at := filepath.Join(dir, "plugins")
			return errors.Join(os.Symlink(elsewhere, at), os.Lchown(at, 1234, 1234))
		}, "is owned by user 1234"},
		"a link of root's": {func(dir, elsewhere string) error { return os.Symlink(elsewhere, filepath.Join(dir, "plugins")) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := filepath.Join(t.TempDir(), "k"), t.TempDir()
			if err := errors.Join(os.Mkdir(dir, 0o750), c.do(dir, elsewhere)); err != nil {
				t.Fatal(err)
			}
			before, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Dir: dir, File: filepath.Join(t.TempDir(), "remembered.json"), Log: slog.New(slog.DiscardHandler)}
			contact, err := Open(o)
			if contact != nil {
				defer contact.Close()
			}
			t.Cleanup(func() { _ = sys.Unmount(dir) })
			var loose *own.LooseError
			if refused := errors.As(err, &loose); refused != (c.says != "") || refused && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if after, err := os.Stat(dir); err != nil || after.Mode() != before.Mode() {
				t.Errorf("%v, %v", after, err)
			}
			if info, err := os.Stat(filepath.Join(dir, "plugins_registry")); err == nil && info.Mode().Perm()&0o022 != 0 {
				t.Errorf("others may write %v", info.Mode())
			}
		})
	}
}
