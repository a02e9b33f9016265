package sys_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// noDevice is a character device that no driver has: who opens it gets ENXIO.
var noDevice = unix.Mkdev(511, 1<<19-1)

// hostile makes a directory as a container would, beside a file that it must not reach.
func hostile(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	outside := filepath.Join(filepath.Dir(root), "outside")
	err := errors.Join(
		os.MkdirAll(root+"/sub/deep", 0o755), os.WriteFile(outside, []byte("secret"), 0o600),
		os.WriteFile(root+"/file", []byte("text"), 0o644),
		os.Symlink("../file", root+"/sub/beneath"), os.Symlink("/file", root+"/sub/absolute"),
		os.Symlink("../../outside", root+"/sub/out"), os.Symlink(outside, root+"/away"),
		os.Symlink("loop", root+"/loop"), os.Symlink("/proc/self/fd/0", root+"/magic"),
		unix.Mkfifo(root+"/fifo", 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/sparse", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(root+"/sparse", 100<<30); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	return root
}

func TestReadRegular(t *testing.T) {
	t.Parallel()
	root := hostile(t)
	anything := errors.New("any error")
	for _, c := range []struct {
		name                     string
		noLinks, beneath, inRoot error
	}{
		{"file", nil, nil, nil},
		{"sub/../file", nil, nil, nil},
		{"sub/beneath", sys.ErrNotRegular, nil, nil},
		{"sub/absolute", sys.ErrNotRegular, unix.EXDEV, nil},
		{"sub/out", sys.ErrNotRegular, unix.EXDEV, fs.ErrNotExist},
		{"away", sys.ErrNotRegular, unix.EXDEV, fs.ErrNotExist},
		{"../outside", unix.EXDEV, unix.EXDEV, fs.ErrNotExist},
		{"loop", sys.ErrNotRegular, unix.ELOOP, unix.ELOOP},
		{"magic", anything, anything, anything},
		{"fifo", sys.ErrNotRegular, sys.ErrNotRegular, sys.ErrNotRegular},
		{"sub", sys.ErrNotRegular, sys.ErrNotRegular, sys.ErrNotRegular},
		{"sparse", sys.ErrTooLong, sys.ErrTooLong, sys.ErrTooLong},
		{"none", fs.ErrNotExist, fs.ErrNotExist, fs.ErrNotExist},
	} {
		for links, want := range map[sys.Follow]error{sys.NoLinks: c.noLinks, sys.LinksBeneath: c.beneath, sys.LinksInRoot: c.inRoot} {
			data, err := sys.ReadRegular(root, c.name, links, 4)
			if want == nil && (err != nil || string(data) != "text") {
				t.Errorf("%s by %#x: %q, %v", c.name, links, data, err)
			}
			if want != nil && (err == nil || !errors.Is(want, anything) && !errors.Is(err, want)) {
				t.Errorf("%s by %#x: %q, %v; want %v", c.name, links, data, err, want)
			}
		}
	}
	if _, err := sys.ReadRegular(root, "file", sys.NoLinks, 3); !errors.Is(err, sys.ErrTooLong) || !strings.Contains(err.Error(), "at most 3 bytes") {
		t.Error(err)
	}
}

func TestDevicesAreNotOpened(t *testing.T) {
	t.Parallel()
	device := filepath.Join(t.TempDir(), "device")
	if err := unix.Mknod(device, unix.S_IFCHR|0o666, int(noDevice)); err != nil {
		t.Skipf("making a device node: %v", err)
	}
	if _, err := os.Open(device); err == nil {
		t.Fatal("the device was to have no driver")
	}
	if _, err := sys.OpenRegularAt(device); !errors.Is(err, sys.ErrNotRegular) {
		t.Errorf("it was opened: %v", err)
	}
}

func TestOpenRegularToWrite(t *testing.T) {
	t.Parallel()
	root := hostile(t)
	f, err := sys.OpenRegular(root, "file", sys.NoLinks, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("T"), 0); err != nil || f.Name() != root+"/file" {
		t.Error(f.Name(), err)
	}
	if text, err := os.ReadFile(root + "/file"); err != nil || string(text) != "Text" {
		t.Errorf("%q, %v", text, err)
	}
}
