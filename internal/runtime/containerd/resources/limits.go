package resources

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/cap"

	"podrun.io/podrun/internal/cgroup"
)

// limits are the machine's properties on which the limits of every container depend.
type limits struct {
	memory            int64
	lowestOOMScoreAdj int
	// swap is asked for when there is a container: the cgroups of pods are there then.
	swap         func() bool
	pageSizes    []int64
	reservations bool
}

// lowestOOMScoreAdj is the lowest oom_score_adj that the kernel accepts.
const lowestOOMScoreAdj = -1000

// machineLimits detects the limits of the machine. A feature that cannot be detected counts as
// missing.
func machineLimits(cgroups *cgroup.Tree) limits {
	out := limits{
		lowestOOMScoreAdj: lowestOOMScoreAdj, swap: sync.OnceValue(cgroups.LimitsSwap),
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
