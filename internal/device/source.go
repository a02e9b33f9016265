package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys/own"
)

// MakeSource creates the directory on the machine that a plugin's mount names, if nothing is there: containerd does
// so under a kubelet, and plugins rely on it.
func MakeSource(m *v1beta1.Mount) error {
	err := fmt.Errorf("the path %q is not absolute", m.HostPath)
	if filepath.IsAbs(m.HostPath) {
		_, err = os.Stat(m.HostPath)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = own.MkdirAll(m.HostPath, layout.ModeContent)
	}
	if err != nil {
		return fmt.Errorf("mount at %s: %w", m.ContainerPath, err)
	}
	return nil
}
