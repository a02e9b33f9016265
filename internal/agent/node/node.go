// Package node says what this machine is and what it offers its pods: its boot, address, labels and
// resources (Read), and the file with which its administrator names runtime classes and devices
// (Config). Read also warns of properties of the machine that limit what pods can do.
//
// The package does not say what of the resources is in use, and changes nothing. It has nothing to
// do with server.Node, which package nodeinfo implements.
//
// Begin reading at Read.
package node

import (
	"log/slog"
	"maps"
	"os"
	goruntime "runtime"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/sys"
)

// Info is what podrun reads of the machine when it starts. Only the address changes afterwards.
type Info struct {
	// Boot is the kernel's boot ID, and Booted when that boot was, as a monotonic time of this process; zero: unknown.
	Boot   string
	Booted time.Time
	// Address is the machine's own.
	Address *network.HostAddress
	// Resources are the allocatable resources.
	Resources v1.ResourceList
}

// Read reads what this machine is. root is podrun's root directory; its file system is the ephemeral
// storage. devices are the device resources of the node configuration, and cpus is how many CPUs it offers; 0: all.
func Read(root string, devices map[v1.ResourceName][]string, cpus int, log *slog.Logger) (Info, error) {
	boot, err := sys.BootID()
	if err != nil {
		return Info{}, err
	}
	warn(log)
	return Info{
		Boot: boot, Booted: booted(),
		Address: network.ReadHostAddress(log), Resources: resources(root, devices, cpus, log),
	}, nil
}

// booted returns when the machine was booted, whatever its clock was then.
func booted() time.Time {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(since.Nano()))
}

// warn logs properties of this machine that limit what pods can do.
func warn(log *slog.Logger) {
	if sys.EnforcesSELinux("/") {
		log.Warn("SELinux is enforcing: containers without seLinuxOptions and their volumes get no labels; " +
			"label by hand the files to which the policy denies access")
	}
	if hides, err := sys.RootHides(os.Getpid()); hides {
		log.Warn("podrun runs in a chroot: exec, including probes and hooks, is refused in containers started there; " +
			"use pivot_root instead of chroot")
	} else if err != nil {
		log.Debug("checking for a chroot failed", "err", err)
	}
}

// resources returns the node's allocatable resources: all of the machine's but the CPUs that its configuration
// reserves, since podrun reserves nothing for itself.
func resources(root string, devices map[v1.ResourceName][]string, cpus int, log *slog.Logger) v1.ResourceList {
	list := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		list[v1.ResourceMemory] = *resource.NewQuantity(int64(info.Totalram)*int64(info.Unit), resource.BinarySI)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(root, &disk); err == nil {
		list[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(disk.Blocks)*disk.Bsize, resource.BinarySI)
	}
	pages, err := cgroup.HugePages()
	if err != nil {
		log.Debug("reading the machine's huge pages failed", "err", err)
	}
	maps.Copy(list, hugePages(pages))
	for name, named := range devices {
		list[name] = *resource.NewQuantity(int64(len(named)), resource.DecimalSI)
	}
	return list
}

// hugePages converts bytes by page size to resources. A page size that is not available now is left
// out: a container that requests it waits until it is.
func hugePages(pages map[int64]int64) v1.ResourceList {
	list := v1.ResourceList{}
	for size, bytes := range pages {
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		list[v1.ResourceName(name)] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return list
}

// Labels returns the labels that the kubelet gives a node with that name, with more in addition or in
// their place.
func Labels(name string, more map[string]string) map[string]string {
	labels := map[string]string{
		v1.LabelHostname:   name,
		v1.LabelOSStable:   goruntime.GOOS,
		v1.LabelArchStable: goruntime.GOARCH,
	}
	maps.Copy(labels, more)
	return labels
}
