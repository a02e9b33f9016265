package oci

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// mounts returns the default mounts and the wanted ones, parents before children. Each destination
// has one mount: the user's mount replaces podrun's, and either replaces a default.
func mounts(wanted []pod.Mount, shm string) []specs.Mount {
	at := map[string]specs.Mount{}
	var order []string
	put := func(m specs.Mount) {
		if _, there := at[m.Destination]; !there {
			order = append(order, m.Destination)
		}
		at[m.Destination] = m
	}
	for _, m := range defaultMounts() {
		put(m)
	}
	if shm != "" {
		put(specs.Mount{
			Destination: "/dev/shm", Type: "bind", Source: shm,
			Options: []string{"rbind", "rprivate", "nosuid", "noexec", "nodev", "rw"},
		})
	}
	for _, managed := range []bool{true, false} {
		for _, m := range wanted {
			if m.Managed == managed && !m.Block {
				put(bind(m))
			}
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(depth(a), depth(b)) })
	out := make([]specs.Mount, len(order))
	for i, destination := range order {
		out[i] = at[destination]
	}
	return out
}

// runtimesPaths are the paths by which a runtime sets up a container: there it mounts, masks and
// opens files as root, before the container is isolated. What is mounted there must not be under
// the control of other containers meanwhile.
func runtimesPaths() []string {
	return []string{"/", "/proc", "/sys", "/dev", "/dev/pts", "/dev/ptmx", "/dev/console", "/dev/null"}
}

// verifyDestinations returns an error if a container that is not privileged has a volume at one of the
// runtime's paths. The machine's own directory of the same path is accepted there: a container that
// can rename files in it needs no such way.
func verifyDestinations(in Input) error {
	if isPrivileged(pod.Security(in.Pod, in.Container)) {
		return nil
	}
	for _, m := range in.Mounts {
		at := path.Join("/", m.ContainerPath)
		if !m.Managed && m.HostPath != at && slices.Contains(runtimesPaths(), at) {
			return fmt.Errorf("a volume is mounted at %s, which only the machine's own %s may be"+
				" if the container is not privileged; mount it elsewhere", at, at)
		}
	}
	return nil
}

func bind(m pod.Mount) specs.Mount {
	mode, propagation := "rw", "rprivate"
	if m.ReadOnly {
		mode = "ro"
	}
	switch m.Propagation {
	case v1.MountPropagationHostToContainer:
		propagation = "rslave"
	case v1.MountPropagationBidirectional:
		propagation = "rshared"
	}
	options := []string{"rbind", propagation, mode}
	if m.RecursiveReadOnly {
		options = append(options, "rro")
	}
	if m.NoSUID {
		options = append(options, "nosuid")
	}
	if m.NoDev {
		options = append(options, "nodev")
	}
	return specs.Mount{Destination: path.Join("/", m.ContainerPath), Type: "bind", Source: m.HostPath, Options: options}
}

// rootPropagation returns the propagation of the container's root mount, which limits that of the
// mounts below it. "" is the runtime's default, which is private.
func rootPropagation(all []pod.Mount) string {
	out := ""
	for _, m := range all {
		switch m.Propagation {
		case v1.MountPropagationBidirectional:
			return "rshared"
		case v1.MountPropagationHostToContainer:
			out = "rslave"
		}
	}
	return out
}

func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

func defaultMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{
			Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"},
		},
		{
			Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"},
		},
		{
			Destination: "/dev/shm", Type: "tmpfs", Source: "shm",
			Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"},
		},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{
			Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"},
		},
	}
}
