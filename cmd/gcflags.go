package cmd

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/gc"
)

// logFlags say how much of containers' logs is kept. Their names and defaults are the kubelet's.
type logFlags struct {
	maxSize  string
	maxFiles int
}

// minLogSize is the least --container-log-max-size: rotation costs more than what a smaller file holds.
const minLogSize = 1 << 10

// defaultRotation is that of commands without flags for it, and of the flags.
var defaultRotation = containerlog.Rotation{Size: 10 << 20, Files: 5}

func (l *logFlags) add(f *pflag.FlagSet) {
	f.StringVar(&l.maxSize, "container-log-max-size", resource.NewQuantity(defaultRotation.Size, resource.BinarySI).String(), "size at which a container's log is put away for a new one, such as 512Ki or 10Mi")
	f.IntVar(&l.maxFiles, "container-log-max-files", defaultRotation.Files, "files kept of a container's log, older ones compressed; at least 2")
}

func (l *logFlags) options(o *agent.Options) error {
	size, err := resource.ParseQuantity(l.maxSize)
	if err != nil || size.Value() < minLogSize {
		return fmt.Errorf("--container-log-max-size %q: must be a quantity of at least 1Ki, such as 10Mi", l.maxSize)
	}
	if l.maxFiles < 2 {
		return fmt.Errorf("--container-log-max-files %d: must be at least 2", l.maxFiles)
	}
	o.LogRotation = containerlog.Rotation{Size: size.Value(), Files: l.maxFiles}
	return nil
}

// haltFlags say how pods end when the machine shuts down.
type haltFlags struct{ o agent.HaltOptions }

func (h *haltFlags) add(f *pflag.FlagSet) {
	f.DurationVar(&h.o.Grace, "shutdown-grace-period", 30*time.Second, "longest that a shutdown of the machine waits for pods to end, if systemd's logind grants it; 0: not at all")
	f.DurationVar(&h.o.Critical, "shutdown-grace-period-critical-pods", 0, "what of that is kept for pods of critical priority, which end last")
	fromEnvironment(f)
}

func (h *haltFlags) options(o *agent.Options) error {
	if h.o.Grace < 0 || h.o.Critical < 0 || h.o.Critical > h.o.Grace {
		return fmt.Errorf("--shutdown-grace-period %s, --shutdown-grace-period-critical-pods %s: must not be negative, and the second not the greater", h.o.Grace, h.o.Critical)
	}
	o.Halt = h.o
	o.Halt.Bus = os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	return nil
}

// garbageFlags say when images go that nobody uses, and logs of pods that are gone, and when a disk is too full.
type garbageFlags struct{ policy gc.Policy }

func (g *garbageFlags) add(f *pflag.FlagSet) {
	p := &g.policy
	f.IntVar(&p.High, "image-gc-high-threshold", 85, "percentage of the images' disk from which on images that nobody uses are removed; 100: never")
	f.IntVar(&p.Low, "image-gc-low-threshold", 80, "percentage down to which that is done")
	f.DurationVar(&p.MinAge, "image-minimum-gc-age", 2*time.Minute, "how long an image that nobody uses stays at least")
	f.DurationVar(&p.MaxAge, "image-maximum-gc-age", 0, "after how long it goes in any case; 0: not for its age")
	f.IntVar(&p.LeastFree, "disk-pressure-threshold", 10, "percentage that has to be free on a disk; with less, all images that nobody uses go and it is told; 0: never")
	f.DurationVar(&p.LogAge, "pod-log-retention", 0, "how long the logs of pods that are gone stay; 0: they go with the pod")
	fromEnvironment(f)
}

func (g *garbageFlags) options(o *agent.Options) error {
	p := g.policy
	switch {
	case p.High < 1 || p.High > 100 || p.Low < 0 || p.Low > p.High:
		return fmt.Errorf("--image-gc-high-threshold %d, --image-gc-low-threshold %d: must be percentages, and the second not the greater", p.High, p.Low)
	case p.MinAge < 0 || p.MaxAge < 0 || p.MaxAge != 0 && p.MaxAge <= p.MinAge:
		return fmt.Errorf("--image-minimum-gc-age %s, --image-maximum-gc-age %s: must not be negative, and the second greater unless 0", p.MinAge, p.MaxAge)
	case p.LogAge < 0:
		return fmt.Errorf("--pod-log-retention %s: must not be negative", p.LogAge)
	case p.LeastFree < 0 || p.LeastFree > 99:
		return fmt.Errorf("--disk-pressure-threshold %d: must be a percentage below 100", p.LeastFree)
	}
	o.Garbage = p
	return nil
}
