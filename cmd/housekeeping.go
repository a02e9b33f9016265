package cmd

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/logs"
)

// housekeepingFlags say what may stay lying about. Their names and defaults are the kubelet's.
type housekeepingFlags struct {
	logMaxSize  string
	logMaxFiles int
}

// minLogSize is the least --container-log-max-size: rotation costs more than what a smaller file holds.
const minLogSize = 1 << 10

func (h *housekeepingFlags) add(f *pflag.FlagSet) {
	f.StringVar(&h.logMaxSize, "container-log-max-size", "10Mi", "size at which a container's log is put away for a new one, such as 512Ki or 10Mi")
	f.IntVar(&h.logMaxFiles, "container-log-max-files", 5, "files kept of a container's log, older ones compressed; at least 2")
}

func (h *housekeepingFlags) options(o *agent.Options) error {
	size, err := resource.ParseQuantity(h.logMaxSize)
	if err != nil || size.Value() < minLogSize {
		return fmt.Errorf("--container-log-max-size %q: must be a quantity of at least 1Ki, such as 10Mi", h.logMaxSize)
	}
	if h.logMaxFiles < 2 {
		return fmt.Errorf("--container-log-max-files %d: must be at least 2", h.logMaxFiles)
	}
	o.LogRotation = logs.Rotation{Size: size.Value(), Files: h.logMaxFiles}
	return nil
}
