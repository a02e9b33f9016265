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
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/server"
)

// The longest crash back-off is in these bounds, as the kubelet's crashLoopBackOff.maxContainerRestartPeriod
// (pkg/kubelet/apis/config/validation).
const (
	leastRestartPeriod = time.Second
	mostRestartPeriod  = 5 * time.Minute
)

// runFlags are those of serve and once.
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
	f.DurationVar(&r.relistPeriod, "relist-period", time.Second, "how often containers are listed when no event stream is heard")
	f.StringVar(&r.events, "events", "auto", "whether to listen to containerd's event stream: auto, on or off")
	f.DurationVar(&r.maxRestartPeriod, "max-container-restart-period", mostRestartPeriod, "longest crash back-off, between 1s and 5m")
	f.BoolVar(&r.seccompDefault, "seccomp-default", false, "give containers without a seccomp profile RuntimeDefault's instead of none")
	f.StringSliceVar(&r.allowedSysctls, "allowed-unsafe-sysctls", nil, "kernel parameters that pods may set beside the safe ones (kernel.msg*,net.core.somaxconn)")
	f.StringSliceVar(&r.cdiDirs, "cdi-spec-dirs", []string{"/etc/cdi", "/var/run/cdi"}, "directories of CDI's specifications, for devices that pods name by annotations cdi.k8s.io/…")
	f.StringVar(&r.nodeConfig, "node-config", "", "file of what this node has for pods: runtime classes and devices")
	f.Int64Var(&r.podMaxPids, "pod-max-pids", -1, "most processes that a pod may have; -1: any number")
	f.StringVar(&r.cgroupDriver, "cgroup-driver", string(oci.Cgroupfs), "who makes pods' cgroups: cgroupfs, or systemd as slices and scopes")
	r.network.add(f)
	r.registry.add(f)
	r.logs.add(f)
	f.BoolVar(&r.preferLocal, "prefer-local", false, "start from an image that is present when one with imagePullPolicy Always cannot be pulled")
	f.StringVar(&r.imageDir, "image-dir", "", "directory of OCI and Docker archives to load at the start (default: images in the root directory)")
	fromEnvironment(f)
}

// options turns the flags into what the agent wants.
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
		return agent.Options{}, usage(c, fmt.Errorf("--max-container-restart-period %s: must be at least %s and at most %s", d, leastRestartPeriod, mostRestartPeriod))
	}
	if r.podMaxPids == 0 || r.podMaxPids < -1 {
		return agent.Options{}, usage(c, fmt.Errorf("--pod-max-pids %d: must be positive, or -1 for any number", r.podMaxPids))
	}
	for _, name := range r.allowedSysctls {
		if pod.SysctlNamespace(name) == "" {
			return agent.Options{}, usage(c, fmt.Errorf("--allowed-unsafe-sysctls %q: is the whole machine's, not a pod's", name))
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
	if err := errors.Join(r.registry.options(c.Flags(), &o.Connect), r.network.options(&o), r.logs.options(&o)); err != nil {
		return agent.Options{}, usage(c, err)
	}
	o.RelistPeriod, o.MaxBackoff, o.Events = r.relistPeriod, r.maxRestartPeriod, r.events
	return o, nil
}

// cgroupDriver takes the driver of that name; systemd says whether it runs here.
func cgroupDriver(name string, systemd bool) (oci.Driver, error) {
	switch d := oci.Driver(name); {
	case d == oci.Cgroupfs, d == oci.Systemd && systemd:
		return d, nil
	case d == oci.Systemd:
		return "", errors.New("--cgroup-driver systemd: systemd does not run here (there is no /run/systemd/system); cgroupfs works without it")
	default:
		return "", fmt.Errorf("--cgroup-driver %q: must be cgroupfs or systemd", name)
	}
}

// agentOptions are those that every command of the agent has.
func (a *app) agentOptions() agent.Options {
	return agent.Options{Dirs: a.dirs(), Connect: a.connection(), Stdin: a.in, Log: a.log, LogRotation: defaultRotation}
}

func nodeName(given string) (string, error) {
	name := given
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("--node-name: the hostname is not known: %w", err)
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
		Long: "serve runs the pods of all manifests, restarts what dies as each pod's restartPolicy says, and follows\n" +
			"every change of the manifests, until it is stopped by SIGTERM or SIGINT. The pods run on then, and the\n" +
			"next serve takes them over without a restart. A manifest that turns bad never stops a pod that runs.\n\n" +
			"A pod that another process has, such as once, is shown as OwnedByOther, and serve takes it over as soon as\n" +
			"it is free. Pods that once runs or has left running, and that no manifest of serve names, are left alone.\n\n" +
			"With --manifest-url and no --manifests, /etc/pods is read only if it is there or comes to be there. What\n" +
			"the URL served last is kept for a restart while its server is down.",
		Example: "  # keep a machine's pods\n  podrun serve --manifests /etc/pods\n\n" +
			"  # two sources, own directories, JSON logs\n  podrun serve --manifests /etc/pods --manifests /srv/extra.yaml --root-dir /data/podrun --log-format json\n\n" +
			"  # the pods that a server names; in the environment a secret is not seen by ps\n" +
			"  PODRUN_MANIFEST_URL_HEADER='Authorization: Bearer s3cret' podrun serve --manifest-url https://pods.example/node1.yaml",
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
			if err := needRoot(c); err != nil {
				return err
			}
			outlastReaders() // its pods need it more than its log
			o.Hurry, o.Notify = a.hurry, agent.NotifyFrom(os.Getenv)
			return a.agentError(c, agent.Serve(c.Context(), o, stopPods))
		},
	}
	c.Flags().StringVar(&listen.Address, "listen", "", "address to answer HTTP at too, read-only (127.0.0.1:10255); always on podrun.sock in the run directory. Other than loopback needs the three files")
	c.Flags().StringVar(&listen.CertFile, "listen-cert-file", "", "certificate, in PEM, for --listen with TLS; it is read again when it changes")
	c.Flags().StringVar(&listen.KeyFile, "listen-key-file", "", "the certificate's key")
	c.Flags().StringVar(&listen.TokenFile, "listen-token-file", "", "file with the bearer token that clients of --listen must send; it is read for each request")
	r.add(c.Flags())
	garbage.add(c.Flags())
	halt.add(c.Flags())
	c.Flags().BoolVar(&stopPods, "stop-pods", false, "stop and remove the pods when serve ends")
	return c
}

// ownedHint says what to do where command is refused a pod that another process has.
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
		return &failure{code: exitUsage, err: err, hint: "nothing was started; podrun validate checks manifests without running them"}
	case errors.As(err, &owned):
		return &failure{code: exitUsage, err: err, hint: ownedHint(c.Name(), owned)}
	case errors.As(err, &locked):
		return &failure{code: exitUsage, err: err, hint: "nothing was done to any pod"}
	case errors.As(err, &elsewhere):
		return &failure{code: exitFailed, err: err, hint: elsewhere.Hint()}
	case errors.Is(err, agent.ErrEnding):
		return &failure{code: exitFailed, err: err, hint: "wait until it is done, or interrupt it"}
	case errors.Is(err, agent.ErrServing):
		return &failure{code: exitFailed, err: err, hint: "stop it first, or give this one its own --run-dir and --root-dir"}
	}
	return unreachable(c.Context(), err)
}
