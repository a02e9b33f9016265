package host

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
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
	return u, nil
}
