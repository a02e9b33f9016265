package volume

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// kindsOfNFS returns the types of NFS in the mount table.
func kindsOfNFS() []string { return []string{"nfs", "nfs4"} }

// readyNFS mounts the export with the machine's own mount command, which knows how to reach it,
// unless it is mounted already. An export that is mounted is not accessed: its server may be
// unreachable, and then every access blocks for ever.
func (v *Volumes) readyNFS(ctx context.Context, p *v1.Pod, name string, n *v1.NFSVolumeSource) (string, error) {
	dir := v.dirs.Revision(p.UID).Volume(layout.KindNFS, name)
	switch kind, err := v.mounts.KindOn(dir); {
	case err != nil || slices.Contains(kindsOfNFS(), kind):
		return dir, err
	case kind != "":
		return "", fmt.Errorf("nfs: on %s is a file system of the type %q", dir, kind)
	}
	dir, err := v.makeDir(p.UID, layout.KindNFS, name)
	if err != nil {
		return "", err
	}
	mount, err := exportMount(n, dir)
	if err == nil {
		err = v.mounts.Mount(ctx, p.UID, dir, mount, kindsOfNFS())
	}
	if err != nil {
		return "", fmt.Errorf("nfs: %w", err)
	}
	return dir, nil
}

// exportMount returns the command that mounts the export on dir.
func exportMount(n *v1.NFSVolumeSource, dir string) (sys.Program, error) {
	options := "nodev" // but not nosuid: in a container, set-user-ID programs of an export may work
	if n.ReadOnly {
		options += ",ro"
	}
	mount := sys.Program{Name: "mount", Options: []string{"-t", "nfs", "-o", options}}
	server, err := pod.ServerName(n.Server)
	if err != nil {
		return mount, fmt.Errorf("server %q: %w", n.Server, err)
	}
	export, err := sys.ExportOperand(server, n.Path)
	if err != nil {
		return mount, err
	}
	at, err := sys.PathOperand(dir)
	mount.Operands = []sys.Operand{export, at}
	return mount, err
}
