package resources

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/cap"

	"podrun.io/podrun/internal/cgroup"
)

// limits are the machine's properties on which the limits of every container depend.
type limits struct {
	memory            int64
	lowestOOMScoreAdj int
	swap              bool
	pageSizes         []int64
	reservations      bool
}

// lowestOOMScoreAdj is the lowest oom_score_adj that the kernel accepts.
const lowestOOMScoreAdj = -1000

// machineLimits detects the limits of the machine. A feature that cannot be detected counts as
// missing.
func machineLimits(cgroups *cgroup.Tree) limits {
	out := limits{
		lowestOOMScoreAdj: lowestOOMScoreAdj, swap: swapLimits(),
		pageSizes: supportedPageSizes(cgroups), reservations: cgroups.LimitsReservations(),
	}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		out.memory = int64(info.Totalram) * int64(info.Unit)
	}
	have, err := cap.Current()
	if err != nil || slices.Contains(have, "CAP_SYS_RESOURCE") {
		return out
	}
	text, err := os.ReadFile("/proc/self/oom_score_adj") // trusted: the kernel's
	if err != nil {
		return out
	}
	if own, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		out.lowestOOMScoreAdj = own
	}
	return out
}

// swapLimits reports whether cgroups can limit swap. On cgroup v2 the root cgroup has no file for
// it, so it checks podrun's own cgroup.
func swapLimits() bool {
	if !cgroup.Unified() {
		_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes") // trusted: the kernel's
		return err == nil
	}
	text, err := os.ReadFile("/proc/self/cgroup") // trusted: the kernel's
	if err != nil {
		return false
	}
	path := strings.TrimPrefix(strings.TrimSpace(string(text)), "0::")
	_, err = os.Stat(filepath.Join("/sys/fs/cgroup", path, "memory.swap.max")) // trusted: the kernel's
	return err == nil
}
