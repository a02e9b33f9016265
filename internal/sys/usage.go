package sys

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Usage is the machine's resource usage.
type Usage struct {
	// Since is the time of the last boot.
	Since time.Time
	// CPU is the time since boot in which the machine's processors were not idle.
	CPU time.Duration
	// Memory is the memory in use, in bytes, including cached files; WorkingSet is Memory without
	// the cached files that were not used lately; Total is all memory.
	Memory, WorkingSet, Total int64
	// Swap is the swap space in use, in bytes; SwapTotal is all of it.
	Swap, SwapTotal int64
	// Threads is the current number of threads, which the kernel calls tasks; MostThreads is the
	// maximum.
	Threads, MostThreads int64
	// Processors is the number of processors that are online.
	Processors int
}

// ReadUsage returns the machine's current resource usage.
func ReadUsage() (Usage, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Usage{}, fmt.Errorf("reading the machine's usage: %w", err)
	}
	stat, err := fs.Stat()
	if err != nil {
		return Usage{}, fmt.Errorf("reading the machine's usage: %w", err)
	}
	memory, err := fs.Meminfo()
	if err != nil {
		return Usage{}, fmt.Errorf("reading the machine's usage: %w", err)
	}
	bytes := func(n *uint64) int64 {
		if n == nil {
			return 0
		}
		return int64(*n)
	}
	c := stat.CPUTotal
	u := Usage{
		Since: time.Unix(int64(stat.BootTime), 0), Total: bytes(memory.MemTotalBytes), Processors: len(stat.CPU),
		CPU: time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)),
	}
	u.Memory = u.Total - bytes(memory.MemFreeBytes)
	u.WorkingSet = max(u.Memory-bytes(memory.InactiveFileBytes), 0)
	u.SwapTotal = bytes(memory.SwapTotalBytes)
	u.Swap = max(u.SwapTotal-bytes(memory.SwapFreeBytes), 0)
	u.Threads, u.MostThreads = threads(), mostThreads()
	return u, nil
}

// threads returns the number of threads; 0: unknown.
func threads() int64 {
	text, err := os.ReadFile("/proc/loadavg") // as 0.12 0.34 0.56 2/345 678
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 4 {
		return 0
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// mostThreads returns the lower of the kernel's limits; 0: unknown.
func mostThreads() int64 {
	var lowest int64
	for _, name := range []string{"pid_max", "threads-max"} {
		text, err := os.ReadFile("/proc/sys/kernel/" + name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	return lowest
}

// Link contains the traffic counters of a network interface since its creation.
type Link struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// mostLinks is how many interfaces of a pod are reported: its containers may be allowed to make any number.
const mostLinks = 64

// Links returns the network interfaces in the network namespace at the path netns, sorted by name, but no more than
// mostLinks; an empty path means all of the machine's own. It leaves out interfaces that lead nowhere else: the
// loopback, and the machine's ends of the veth pairs of pods.
func Links(netns string) ([]Link, error) {
	var all procfs.NetDev
	read := func(proc string) error {
		fs, err := procfs.NewFS(proc)
		if err == nil {
			all, err = fs.NetDev()
		}
		return err
	}
	var err error
	if netns == "" {
		err = read(procfs.DefaultMountPoint)
	} else {
		err = OnOwnThread(func() error {
			f, err := os.Open(netns)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return read("/proc/thread-self")
		})
	}
	if err != nil {
		return nil, fmt.Errorf("reading network interfaces: %w", err)
	}
	var out []Link
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name == "lo" || strings.HasPrefix(name, "veth") || netns == "" && isPodEnd(name) {
			continue
		}
		l := all[name]
		out = append(out, Link{
			Name:    name,
			RxBytes: l.RxBytes, RxPackets: l.RxPackets, RxErrors: l.RxErrors, RxDropped: l.RxDropped,
			TxBytes: l.TxBytes, TxPackets: l.TxPackets, TxErrors: l.TxErrors, TxDropped: l.TxDropped,
		})
		if netns != "" && len(out) == mostLinks {
			break
		}
	}
	return out, nil
}

// isPodEnd reports whether podrun's own bridge gave the link its name: pr and ten hexadecimal
// digits.
func isPodEnd(name string) bool {
	digits, ok := strings.CutPrefix(name, "pr")
	return ok && len(digits) == 10 && strings.Trim(digits, "0123456789abcdef") == ""
}

// FS is the capacity and usage of a file system, in bytes and in files.
type FS struct {
	// Free is the free space including what is reserved for root, Available is without it.
	Capacity, Free, Available, Files, FilesFree uint64
}

// ReadFS returns the capacity and usage of the file system that path is on.
func ReadFS(path string) (FS, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FS{}, fmt.Errorf("reading the usage of the file system of %s: %w", path, err)
	}
	size := uint64(st.Bsize)
	return FS{
		Capacity:  st.Blocks * size,
		Free:      st.Bfree * size,
		Available: st.Bavail * size,
		Files:     st.Files,
		FilesFree: st.Ffree,
	}, nil
}
