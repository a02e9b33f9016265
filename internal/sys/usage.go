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

// Usage is what the machine has taken since it started.
type Usage struct {
	// Since is when it started.
	Since time.Time
	// CPU is the time that its processors were not idle.
	CPU time.Duration
	// Memory is what is in use in bytes, with the files' that are cached; WorkingSet is Memory without what of these
	// was not used lately; Total is what there is.
	Memory, WorkingSet, Total int64
	// Swap is what has been swapped out, SwapTotal how much may be, in bytes.
	Swap, SwapTotal int64
	// Threads is how many there are, which is what the kernel calls tasks; MostThreads how many there may be.
	Threads, MostThreads int64
}

// ReadUsage reads what the machine has taken.
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
		Since: time.Unix(int64(stat.BootTime), 0), Total: bytes(memory.MemTotalBytes),
		CPU: time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)),
	}
	u.Memory = u.Total - bytes(memory.MemFreeBytes)
	u.WorkingSet = max(u.Memory-bytes(memory.InactiveFileBytes), 0)
	u.SwapTotal = bytes(memory.SwapTotalBytes)
	u.Swap = max(u.SwapTotal-bytes(memory.SwapFreeBytes), 0)
	u.Threads, u.MostThreads = threads(), mostThreads()
	return u, nil
}

// threads is how many there are; 0: the kernel does not say.
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

// mostThreads is the lower of the kernel's limits; 0: it does not say.
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

// Link is what a network interface has carried since it was made.
type Link struct {
	Name                                 string
	RxBytes, RxErrors, TxBytes, TxErrors uint64
}

// Links are the network interfaces that a process sees, 0 for those of the machine, by name; those that lead
// nowhere else are left out: the loopback's, and the machine's ends of pods'.
func Links(pid int) ([]Link, error) {
	read := func(fs procfs.FS) (procfs.NetDev, error) { return fs.NetDev() }
	if pid != 0 {
		read = func(fs procfs.FS) (procfs.NetDev, error) {
			p, err := fs.Proc(pid)
			if err != nil {
				return nil, err
			}
			return p.NetDev()
		}
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("reading network interfaces: %w", err)
	}
	all, err := read(fs)
	if err != nil {
		return nil, fmt.Errorf("reading network interfaces: %w", err)
	}
	var out []Link
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name == "lo" || strings.HasPrefix(name, "veth") || pid == 0 && isPodEnd(name) {
			continue
		}
		l := all[name]
		out = append(out, Link{name, l.RxBytes, l.RxErrors, l.TxBytes, l.TxErrors})
	}
	return out, nil
}

// isPodEnd reports that podrun's own bridge named the link so: pr and ten hexadecimal digits.
func isPodEnd(name string) bool {
	digits, ok := strings.CutPrefix(name, "pr")
	return ok && len(digits) == 10 && strings.Trim(digits, "0123456789abcdef") == ""
}

// FS is how full a file system is, in bytes and in files.
type FS struct {
	// Free is what is left for anybody, Available for others than root.
	Capacity, Free, Available, Files, FilesFree uint64
}

// ReadFS looks at the file system that path is on.
func ReadFS(path string) (FS, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FS{}, fmt.Errorf("looking at the file system of %s: %w", path, err)
	}
	size := uint64(st.Bsize)
	return FS{Capacity: st.Blocks * size, Free: st.Bfree * size, Available: st.Bavail * size, Files: st.Files, FilesFree: st.Ffree}, nil
}
