package cmd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/server"
)

// The bounds of the longest crash back-off are those of the kubelet's
// crashLoopBackOff.maxContainerRestartPeriod (pkg/kubelet/apis/config/validation).
const (
	leastRestartPeriod = time.Second
	mostRestartPeriod  = 5 * time.Minute
)

// runFlags are the flags that serve and once have in common.
type runFlags struct {
	sources          sourceFlags
	relistPeriod     time.Duration
	events           string
	maxRestartPeriod time.Duration
	network          networkFlags
	seccompDefault   bool
	podMaxPids       int64
	cgroupDriver     string
	allowedSysctls   []string
	nodeConfig       string
	cdiDirs          []string
	registry         registryFlags
	preferLocal      bool
	imageDir         string
	logs             logFlags
}

func (r *runFlags) add(f *pflag.FlagSet) {
	r.sources.add(f)
	f.DurationVar(&r.relistPeriod, "relist-period", time.Second,
		"how often containers are listed while there is no event stream")
	f.StringVar(&r.events, "events", "auto", "use containerd's event stream: auto, on or off")
	f.DurationVar(&r.maxRestartPeriod, "max-container-restart-period", mostRestartPeriod,
		"maximum crash back-off, between 1s and 5m")
	f.BoolVar(&r.seccompDefault, "seccomp-default", false,
		"use the RuntimeDefault seccomp profile for containers without a profile")
	f.StringSliceVar(&r.allowedSysctls, "allowed-unsafe-sysctls", nil,
		"sysctls that pods may set in addition to the safe ones (kernel.msg*,net.core.somaxconn)")
	f.StringSliceVar(&r.cdiDirs, "cdi-spec-dirs", []string{"/etc/cdi", "/var/run/cdi"},
		"directories of CDI specifications, for devices that pods request by annotations cdi.k8s.io/…")
	f.StringVar(&r.nodeConfig, "node-config", "", "file with the runtime classes and devices of this node")
	f.Int64Var(&r.podMaxPids, "pod-max-pids", -1, "maximum number of processes per pod; -1: no limit")
	f.StringVar(&r.cgroupDriver, "cgroup-driver", string(oci.Cgroupfs),
		"driver that manages the pods' cgroups: cgroupfs, or systemd for slices and scopes")
	r.network.add(f)
	r.registry.add(f)
	r.logs.add(f)
	f.BoolVar(&r.preferLocal, "prefer-local", false,
		"use a local image if an image with imagePullPolicy Always cannot be pulled")
	f.StringVar(&r.imageDir, "image-dir", "",
		"directory of OCI and Docker archives to load at start (default: images in the root directory)")
	fromEnvironment(f)
}

// options checks the flags and returns the options of the agent.
func (r *runFlags) options(a *app, c *cobra.Command) (agent.Options, error) {
	switch r.events {
	case "auto", "on", "off":
	default:
		return agent.Options{}, usage(c, fmt.Errorf("--events %q: must be auto, on or off", r.events))
	}
	if err := positive(map[string]time.Duration{"relist-period": r.relistPeriod}); err != nil {
		return agent.Options{}, usage(c, err)
	}
	if d := r.maxRestartPeriod; d < leastRestartPeriod || d > mostRestartPeriod {
		return agent.Options{}, usage(c,
			fmt.Errorf("--max-container-restart-period %s: must be at least %s and at most %s",
				d, leastRestartPeriod, mostRestartPeriod))
	}
	if r.podMaxPids == 0 || r.podMaxPids < -1 {
		return agent.Options{}, usage(c,
			fmt.Errorf("--pod-max-pids %d: must be positive, or -1 for any number", r.podMaxPids))
	}
	for _, name := range r.allowedSysctls {
		if pod.SysctlNamespace(name) == "" {
			return agent.Options{}, usage(c,
				fmt.Errorf("--allowed-unsafe-sysctls %q: is not namespaced; it applies to the whole machine", name))
		}
	}
	o := a.agentOptions()
	if err := r.sources.options(c, &o); err != nil {
		return agent.Options{}, usage(c, err)
	}
	o.Connect.AllowedSysctls, o.Connect.CDIDirs = r.allowedSysctls, r.cdiDirs
	if r.nodeConfig != "" {
		node, err := agent.ReadNodeConfig(r.nodeConfig)
		if err != nil {
			return agent.Options{}, usage(c, fmt.Errorf("--node-config: %w", err))
		}
		o.Connect.RuntimeClasses, o.Connect.Devices = node.Classes(), node.Devices
	}
	var err error
	if o.Connect.CgroupDriver, err = cgroupDriver(r.cgroupDriver, cgroup.HasSystemd()); err != nil {
		return agent.Options{}, usage(c, err)
	}
	o.Connect.SeccompDefault, o.Connect.PodMaxPids = r.seccompDefault, max(r.podMaxPids, 0)
	o.PreferLocal, o.ImageDir = r.preferLocal, r.imageDir
	if err := errors.Join(
		r.registry.options(c.Flags(), &o.Connect),
		r.network.options(&o),
		r.logs.options(&o),
	); err != nil {
		return agent.Options{}, usage(c, err)
	}
	o.RelistPeriod, o.MaxBackoff, o.Events = r.relistPeriod, r.maxRestartPeriod, r.events
	return o, nil
}

// cgroupDriver returns the cgroup driver with a name. systemd tells whether systemd runs on this
// machine.
func cgroupDriver(name string, systemd bool) (oci.Driver, error) {
	switch d := oci.Driver(name); {
	case d == oci.Cgroupfs, d == oci.Systemd && systemd:
		return d, nil
	case d == oci.Systemd:
		return "", errors.New("--cgroup-driver systemd: systemd does not run here " +
			"(there is no /run/systemd/system); cgroupfs works without it")
	default:
		return "", fmt.Errorf("--cgroup-driver %q: must be cgroupfs or systemd", name)
	}
}

// agentOptions returns the options of the agent that all commands share.
func (a *app) agentOptions() agent.Options {
	return agent.Options{
		Dirs:        a.dirs(),
		Connect:     a.connection(),
		Stdin:       a.In,
		Log:         a.log,
		LogRotation: defaultRotation,
	}
}

func nodeName(given string) (string, error) {
	name := given
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("--node-name: reading the hostname: %w", err)
		}
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "", fmt.Errorf("--node-name %q: %s", name, strings.Join(errs, "; "))
	}
	return name, nil
}

func (a *app) serveCommand() *cobra.Command {
	var r runFlags
	var stopPods bool
	var garbage garbageFlags
	var listen server.ListenOptions
	var halt haltFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Keep the pods of all manifests running",
		Long: "serve runs the pods of all manifests, restarts containers as the restartPolicy of each pod says,\n" +
			"and applies every change of the manifests, until SIGTERM or SIGINT stops it. The pods then\n" +
			"continue to run, and the next serve takes them over without a restart. A manifest that becomes\n" +
			"invalid never stops a running pod.\n\n" +
			"A pod that another process owns, such as once, is shown as OwnedByOther. serve takes it over as\n" +
			"soon as that process releases it. serve does not touch pods that once runs or has left running if\n" +
			"no manifest of serve names them.\n\n" +
			"With --manifest-url and without --manifests, /etc/pods is read only if it exists, or as soon as it\n" +
			"exists. The last response of the URL is kept on disk, for a restart while the server is down.",
		Example: "  # run the pods of a machine\n  podrun serve --manifests /etc/pods\n\n" +
			"  # two sources, separate directories, JSON logs\n" +
			"  podrun serve --manifests /etc/pods --manifests /srv/extra.yaml \\\n" +
			"    --root-dir /data/podrun --log-format json\n\n" +
			"  # run the pods that a server returns; ps does not show a secret in an environment variable\n" +
			"  PODRUN_MANIFEST_URL_HEADER='Authorization: Bearer s3cret' \\\n" +
			"    podrun serve --manifest-url https://pods.example/node1.yaml",
		Args: argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := r.options(a, c)
			if err != nil {
				return err
			}
			o.Listen = listen
			if err := errors.Join(garbage.options(&o), halt.options(&o)); err != nil {
				return usage(c, err)
			}
			for _, path := range o.Sources.Manifests {
				if path == "-" {
					return usage(c, errors.New("--manifests -: standard input is read by once only"))
				}
			}
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			cli.IgnoreSIGPIPE() // the pods must run on even if nobody reads the log
			o.Hurry, o.Notify = a.signals.Second(), agent.NotifyFrom(os.Getenv)
			return a.agentError(c, agent.Serve(c.Context(), o, stopPods))
		},
	}
	c.Flags().StringVar(&listen.Address, "listen", "",
		"address of the read-only HTTP server (127.0.0.1:10255), which always listens on podrun.sock in the run\n"+
			"directory too. An address other than loopback requires the three --listen-…-file flags")
	c.Flags().StringVar(&listen.CertFile, "listen-cert-file", "",
		"TLS certificate for --listen, in PEM format; reloaded when it changes")
	c.Flags().StringVar(&listen.KeyFile, "listen-key-file", "", "private key of the certificate, in PEM format")
	c.Flags().StringVar(&listen.TokenFile, "listen-token-file", "",
		"file with the bearer token that clients of --listen must send; read for each request")
	r.add(c.Flags())
	garbage.add(c.Flags())
	halt.add(c.Flags())
	c.Flags().BoolVar(&stopPods, "stop-pods", false, "stop and remove the pods when serve ends")
	return c
}

// ownedHint returns the hint for a command that failed because another process owns a pod.
func ownedHint(command string, owned *agent.OwnedError) string {
	const wait = "wait until that one has ended, or end it"
	switch {
	case command == "down":
		return "nothing was stopped; " + wait
	case owned.Serve:
		return "nothing was started; serve keeps it: take its manifest away first, or leave it to serve"
	}
	return "nothing was started; " + wait
}

// agentError gives an error of the agent its exit code and hint.
func (a *app) agentError(c *cobra.Command, err error) error {
	var bad *agent.ManifestError
	var elsewhere *agent.ElsewhereError
	var owned *agent.OwnedError
	var locked *agent.LockError
	switch {
	case errors.Is(err, agent.ErrUsage):
		return usage(c, err)
	case errors.As(err, &bad):
		return &cli.Error{
			Code: cli.ExitUsage,
			Err:  err,
			Hint: "nothing was started; podrun validate checks manifests without running them",
		}
	case errors.As(err, &owned):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: ownedHint(c.Name(), owned)}
	case errors.As(err, &locked):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "no pod was changed"}
	case errors.As(err, &elsewhere):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: elsewhere.Hint()}
	case errors.Is(err, agent.ErrEnding):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "wait until it is done, or interrupt it"}
	case errors.Is(err, agent.ErrServing):
		return &cli.Error{
			Code: cli.ExitFailed,
			Err:  err,
			Hint: "stop it first, or give this one its own --run-dir and --root-dir",
		}
	}
	return unreachable(c.Context(), err)
}
