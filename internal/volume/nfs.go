package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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
// is mounted already. One that is mounted is not touched: its server may be out of reach, and whoever looks
// at it then waits for ever.
func (v *Volumes) readyNFS(ctx context.Context, p *v1.Pod, name string, n *v1.NFSVolumeSource) (string, error) {
	dir := v.dirs.Volume(p.UID, layout.KindNFS, name)
	mounted, err := isListed(dir)
	if err != nil || mounted {
		return dir, err
	}
	if dir, err = v.makeDir(p.UID, layout.KindNFS, name); err != nil {
		return "", err
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
	if err := v.mountBy(ctx, p.UID, dir, args); err != nil {
		return "", fmt.Errorf("nfs: %w", err)
	}
	return dir, nil
}

// isListed reports that the table of mounts has one on the directory.
func isListed(dir string) (bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(parent, filepath.Base(dir))))
	return len(mounts) > 0, err
}
