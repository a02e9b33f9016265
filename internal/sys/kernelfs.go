package sys

import "golang.org/x/sys/unix"

// kernelFS are file systems in which a file looks regular, but is none: reading it does something, takes what another
// program waits for, or never ends, as of /proc/kmsg or tracefs' trace_pipe.
var kernelFS = map[int64]string{
	unix.PROC_SUPER_MAGIC: "procfs", unix.SYSFS_MAGIC: "sysfs", unix.DEBUGFS_MAGIC: "debugfs",
	unix.TRACEFS_MAGIC: "tracefs", unix.SECURITYFS_MAGIC: "securityfs", unix.CGROUP_SUPER_MAGIC: "cgroupfs",
	unix.CGROUP2_SUPER_MAGIC: "cgroupfs", unix.BPF_FS_MAGIC: "bpffs", unix.PSTOREFS_MAGIC: "pstore",
	unix.EFIVARFS_MAGIC: "efivarfs", unix.SELINUX_MAGIC: "selinuxfs", unix.BINFMTFS_MAGIC: "binfmt_misc",
}

// KernelFS returns the name of the file system of an open file if it is one of the kernel's, in which files are not
// there to be read as others are; "" if it is one of a disk, of memory or of the network. fd may have been opened with
// O_PATH.
func KernelFS(fd int) (string, error) {
	var of unix.Statfs_t
	err := unix.Fstatfs(fd, &of)
	return kernelFS[of.Type], err
}
