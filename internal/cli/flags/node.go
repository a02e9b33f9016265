package flags

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/shutdown"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/server"
)

// Logs are the flags for the rotation of container logs. Their names and defaults are those of
// the kubelet.
type Logs struct {
	maxSize  string
	maxFiles int
	links    bool
}

// minLogSize is the minimum of --container-log-max-size in bytes. Rotating smaller files costs more
// than the log that they hold.
const minLogSize = 1 << 10

// DefaultRotation is the rotation of commands that have no flags for it, and the default of the
// flags.
var DefaultRotation = containerlog.Rotation{Size: 10 << 20, Files: 5}

// Add adds the flags to f.
func (l *Logs) Add(f *pflag.FlagSet) {
	f.StringVar(&l.maxSize, "container-log-max-size",
		resource.NewQuantity(DefaultRotation.Size, resource.BinarySI).String(),
		"size at which a container log is rotated, such as 512Ki or 10Mi")
	f.IntVar(&l.maxFiles, "container-log-max-files", DefaultRotation.Files,
		"maximum number of files per container log, at least 2; old files are compressed")
	f.BoolVar(&l.links, "log-links", true, "make links to container logs in --log-links-dir")
}

// Options checks the flags and sets the options of the agent.
func (l *Logs) Options(o *agent.Options) error {
	size, err := resource.ParseQuantity(l.maxSize)
	if err != nil || size.Value() < minLogSize {
		return fmt.Errorf("--container-log-max-size %q: must be a quantity of at least 1Ki, such as 10Mi", l.maxSize)
	}
	if l.maxFiles < 2 {
		return fmt.Errorf("--container-log-max-files %d: must be at least 2", l.maxFiles)
	}
	o.LogRotation = containerlog.Rotation{Size: size.Value(), Files: l.maxFiles}
	o.LogLinks = l.links
	return nil
}

// ServedPods are the flags of what serve does with its pods.
type ServedPods struct {
	Stop, rollback bool
	plugins        bool
	pluginsDir     string
	schedule       string
	jitter         time.Duration
}

// defaultPlugins is where plugins look for the kubelet.
const defaultPlugins = "/var/lib/kubelet"

// Add adds the flags to f.
func (s *ServedPods) Add(f *pflag.FlagSet) {
	f.BoolVar(&s.rollback, "rollback", false, "when what a manifest has now is not healthy in time, run again what "+
		"was healthy last; the annotation podrun.io/rollback of a pod says otherwise")
	f.BoolVar(&s.plugins, "plugins", false, "let pods use device plugins and CSI drivers, which register below --plugins-dir")
	f.StringVar(&s.pluginsDir, "plugins-dir", defaultPlugins, "directory where plugins look for the kubelet")
	f.StringVar(&s.schedule, "auto-update-schedule", "@daily", "when registries are asked for newer images of pods with the "+
		"annotation podrun.io/auto-update, in the form of a CronJob's schedule; empty: never")
	f.DurationVar(&s.jitter, "auto-update-jitter", 15*time.Minute, "maximum of the random delay of each of these times")
	FromEnvironment(f)
	f.BoolVar(&s.Stop, "stop-pods", false, "stop and remove the pods when serve ends") // of one call
}

// Options checks the flags and sets the options of the agent.
func (s *ServedPods) Options(o *agent.Options) error {
	o.Sources.Rollback = s.rollback
	if !s.plugins && s.pluginsDir != defaultPlugins {
		return fmt.Errorf("--plugins-dir %s: of use with --plugins only", s.pluginsDir)
	}
	if o.Connect.NoPlugins = !s.plugins; s.plugins {
		o.Connect.PluginsDir = s.pluginsDir
	}
	if s.jitter < 0 {
		return fmt.Errorf("--auto-update-jitter %s: must not be negative", s.jitter)
	}
	if err := o.Updates.Set(s.schedule, s.jitter); err != nil {
		return fmt.Errorf("--auto-update-schedule %q: %w; @daily or \"0 4 * * *\", for example", s.schedule, err)
	}
	return nil
}

// Shutdown are the flags for the graceful shutdown of the machine.
type Shutdown struct{ o shutdown.Options }

// Add adds the flags to f.
func (h *Shutdown) Add(f *pflag.FlagSet) {
	f.DurationVar(&h.o.Grace, "shutdown-grace-period", 30*time.Second,
		"maximum delay of the machine's shutdown to stop pods, if systemd-logind permits it; 0: no delay")
	f.DurationVar(&h.o.Critical, "shutdown-grace-period-critical-pods", 0,
		"part of --shutdown-grace-period that is reserved for pods of critical priority, which stop last, "+
			"at least 2s or a tenth of it")
	FromEnvironment(f)
}

// Options checks the flags and sets the options of the agent.
func (h *Shutdown) Options(o *agent.Options) error {
	if h.o.Grace < 0 || h.o.Critical < 0 || h.o.Critical > h.o.Grace {
		return fmt.Errorf("--shutdown-grace-period %s, --shutdown-grace-period-critical-pods %s: "+
			"must not be negative, and the second not the greater", h.o.Grace, h.o.Critical)
	}
	o.Halt = h.o
	o.Halt.Bus = os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	return nil
}

// Garbage are the flags for garbage collection: when unused images and the logs of removed
// pods are deleted, and when a disk is too full.
type Garbage struct{ policy gc.Policy }

// Add adds the flags to f.
func (g *Garbage) Add(f *pflag.FlagSet) {
	p := &g.policy
	f.IntVar(&p.High, "image-gc-high-threshold", 85,
		"usage of the image disk in percent from which unused images are removed; 100: never")
	f.IntVar(&p.Low, "image-gc-low-threshold", 80,
		"usage of the image disk in percent at which the removal of unused images stops")
	f.DurationVar(&p.MinAge, "image-minimum-gc-age", 2*time.Minute,
		"minimum time for which an unused image is kept")
	f.DurationVar(&p.MaxAge, "image-maximum-gc-age", 0,
		"time after which an unused image is removed whatever the disk usage; 0: never")
	f.IntVar(&p.LeastFree, "disk-pressure-threshold", 10,
		"minimum free disk space in percent; below it, all unused images are removed and a warning is logged; 0: never")
	f.DurationVar(&p.LogAge, "pod-log-retention", 0,
		"how long the logs of removed pods are kept; 0: they are removed with the pod")
	FromEnvironment(f)
}

// Options checks the flags and sets the options of the agent.
func (g *Garbage) Options(o *agent.Options) error {
	p := g.policy
	switch {
	case p.High < 1 || p.High > 100 || p.Low < 0 || p.Low > p.High:
		return fmt.Errorf("--image-gc-high-threshold %d, --image-gc-low-threshold %d: "+
			"must be percentages, and the second not the greater", p.High, p.Low)
	case p.MinAge < 0 || p.MaxAge < 0 || p.MaxAge != 0 && p.MaxAge <= p.MinAge:
		return fmt.Errorf("--image-minimum-gc-age %s, --image-maximum-gc-age %s: "+
			"must not be negative, and the second greater unless 0", p.MinAge, p.MaxAge)
	case p.LogAge < 0:
		return fmt.Errorf("--pod-log-retention %s: must not be negative", p.LogAge)
	case p.LeastFree < 0 || p.LeastFree > 99:
		return fmt.Errorf("--disk-pressure-threshold %d: must be a percentage below 100", p.LeastFree)
	}
	o.Garbage = p
	return nil
}

// Listen are the flags for the read-only HTTP server.
type Listen struct{ server.ListenOptions }

// Add adds the flags to f.
func (l *Listen) Add(f *pflag.FlagSet) {
	f.StringVar(&l.Address, "listen", "",
		"address of the read-only HTTP server (127.0.0.1:10255), which always listens on podrun.sock in the run\n"+
			"directory too. An address other than loopback requires the three --listen-…-file flags")
	f.StringVar(&l.CertFile, "listen-cert-file", "",
		"TLS certificate for --listen, in PEM format; reloaded when it changes")
	f.StringVar(&l.KeyFile, "listen-key-file", "", "private key of the certificate, in PEM format")
	f.StringVar(&l.TokenFile, "listen-token-file", "",
		"file with the bearer token that clients of --listen must send; read for each request")
	f.BoolVar(&l.History, "history", false,
		"keep what was used in the last hour, for the page and /api/v1/history, also while nobody looks at it")
	FromEnvironment(f)
}
