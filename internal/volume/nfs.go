package volume

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
)

func isNotEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// readyNFS mounts the export with the machine's own mount command, which knows how to reach it, unless it
// is mounted already.
func (v *Volumes) readyNFS(ctx context.Context, p *v1.Pod, name string, n *v1.NFSVolumeSource) (string, error) {
	dir, err := v.makeDir(p.UID, layout.KindNFS, name)
	if err != nil {
		return "", err
	}
	mounted, err := mountinfo.Mounted(dir)
	if err != nil || mounted {
		return dir, err
	}
	server := n.Server
	if strings.Contains(server, ":") && !strings.HasPrefix(server, "[") {
		server = "[" + server + "]" // an IPv6 address
	}
	args := []string{"-t", "nfs"}
	if n.ReadOnly {
		args = append(args, "-o", "ro")
	}
	args = append(args, server+":"+n.Path, dir)
	out, err := exec.CommandContext(ctx, "mount", args...).CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("nfs: the machine has no mount command")
	case err != nil:
		return "", fmt.Errorf("nfs: mount %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return dir, nil
}
