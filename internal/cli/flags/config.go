package flags

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/connection"
)

// flagSettings are the settings that are shown as their flags have them, by flag.
var flagSettings = map[string]string{
	"auto-update-jitter": "autoUpdateJitter", "auto-update-schedule": "autoUpdateSchedule",
	"cdi-spec-dirs": "cdiSpecDirs", "cni-bin-dir": "cniBinDir", "image-dir": "imageDir",
	"inline-csi-drivers": "inlineCSIDrivers", "listen-token-file": "listenTokenFile",
	"log-format": "logFormat", "log-level": "logLevel", "log-links-dir": "logLinksDir",
	"manifest-url-ca-file": "manifestURLCAFile", "manifest-url-cert-file": "manifestURLCertFile",
	"manifest-url-key-file": "manifestURLKeyFile", "node-config": "nodeConfig", "pod-security": "podSecurity",
	"registry-config": "registryConfig", "registry-hosts-dir": "registryHostsDir", "stop-pods": "stopPods",
	"strict-kinds": "strictKinds",
}

// Config returns what a serve with these options and flags shows at /configz: as kubeletconfig the settings that a
// kubelet has too, under its names, and as podrun the others. It has no secrets: neither headers nor
// tokens nor the arguments of commands.
func Config(o agent.Options, f *pflag.FlagSet) map[string]any {
	return map[string]any{"kubeletconfig": kubeletConfig(o), "podrun": ownConfig(o, f)}
}

// settings are names and values in JSON.
type settings map[string]any

// add adds a setting unless it has no value, as Kubernetes leaves out what is empty.
func (s settings) add(name string, value any, is bool) {
	if is {
		s[name] = value
	}
}

// addFlag adds the value of a flag: a boolean, a list, or text.
func (s settings) addFlag(name string, f *pflag.Flag) {
	if f == nil {
		return
	}
	text := f.Value.String()
	if list, is := f.Value.(pflag.SliceValue); is {
		s.add(name, list.GetSlice(), len(list.GetSlice()) > 0)
	} else if is, err := strconv.ParseBool(text); err == nil && f.Value.Type() == "bool" {
		s[name] = is
	} else {
		s[name] = text
	}
}

func duration(d time.Duration) string { return d.String() }

// kubeletConfig returns the settings in the form of a KubeletConfiguration.
func kubeletConfig(o agent.Options) settings {
	manifests, url := o.Sources.Shown()
	s := settings{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"enableServer": o.Listen.Address != "", "registerNode": false,
		"fileCheckFrequency":              duration(o.Sources.FileCheckFrequency),
		"httpCheckFrequency":              duration(o.Sources.HTTPCheckFrequency),
		"cgroupDriver":                    string(o.Connect.CgroupDriver),
		"podPidsLimit":                    podPidsLimit(o.Connect.PodMaxPids),
		"seccompDefault":                  o.Connect.SeccompDefault,
		"crashLoopBackOff":                settings{"maxContainerRestartPeriod": duration(o.MaxBackoff)},
		"containerLogMaxSize":             strconv.FormatInt(o.LogRotation.Size, 10),
		"containerLogMaxFiles":            o.LogRotation.Files,
		"imageGCHighThresholdPercent":     o.Garbage.High,
		"imageGCLowThresholdPercent":      o.Garbage.Low,
		"imageMinimumGCAge":               duration(o.Garbage.MinAge),
		"imageMaximumGCAge":               duration(o.Garbage.MaxAge),
		"shutdownGracePeriod":             duration(o.Halt.Grace),
		"shutdownGracePeriodCriticalPods": duration(o.Halt.Critical),
		"podLogsDir":                      o.Dirs.Log,
	}
	s.add("staticPodPath", first(manifests), len(manifests) > 0)
	s.add("staticPodURL", url, url != "")
	s.add("clusterDNS", o.ClusterDNS, len(o.ClusterDNS) > 0)
	s.add("clusterDomain", o.ClusterDomain, o.ClusterDomain != "")
	s.add("allowedUnsafeSysctls", o.Connect.AllowedSysctls, len(o.Connect.AllowedSysctls) > 0)
	socket := strings.TrimPrefix(o.Connect.Address, "unix://")
	s.add("containerRuntimeEndpoint", "unix://"+socket, strings.HasPrefix(socket, "/"))
	s.add("tlsCertFile", o.Listen.CertFile, o.Listen.CertFile != "")
	s.add("tlsPrivateKeyFile", o.Listen.KeyFile, o.Listen.KeyFile != "")
	if host, port, err := net.SplitHostPort(o.Listen.Address); err == nil {
		s.add("address", host, host != "")
		if n, err := strconv.Atoi(port); err == nil {
			s.add("port", n, o.Listen.TokenFile != "")
			s.add("readOnlyPort", n, o.Listen.TokenFile == "")
		}
	}
	return s
}

func podPidsLimit(most int64) int64 {
	if most == 0 {
		return -1 // as the kubelet writes that there is none
	}
	return most
}

func first(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// ownConfig returns the settings that a kubelet does not have.
func ownConfig(o agent.Options, f *pflag.FlagSet) settings {
	manifests, _ := o.Sources.Shown()
	s := settings{
		"nodeName": o.NodeName, "rootDir": o.Dirs.Root, "runDir": o.Dirs.Run,
		"containerdAddress":   connection.Locate(o.Connect),
		"containerdNamespace": o.Connect.Namespace, "runtime": o.Connect.RuntimeName,
		"events": o.Events, "relistPeriod": duration(o.RelistPeriod), "preferLocal": o.PreferLocal,
		"noNodeSuffix": o.Sources.NoSuffix, "strictPermissions": o.Sources.StrictPermissions,
		"strictFields": o.Sources.Rules.StrictFields, "ignoreNodeName": o.Sources.Rules.IgnoreNodeName,
		"diskPressureThresholdPercent": o.Garbage.LeastFree, "podLogRetention": duration(o.Garbage.LogAge),
		"routeToPods": o.RouteToPods, "logLinks": o.LogLinks, "rollback": o.Sources.Rollback,
		"plugins": !o.Connect.NoPlugins, "history": o.Listen.History,
	}
	s.add("pluginsDir", o.Connect.PluginsDir, o.Connect.PluginsDir != "")
	s.add("manifests", manifests, len(manifests) > 0)
	s.add("nodeLabels", o.NodeLabels, len(o.NodeLabels) > 0)
	for flag, name := range flagSettings {
		s.addFlag(name, f.Lookup(flag))
	}
	s.add("snapshotter", o.Connect.Snapshotter, o.Connect.Snapshotter != "")
	s.add("cniConfDir", o.CNIConfDir, o.CNIConfDir != "")
	s.add("runtimeClasses", slices.Sorted(maps.Keys(o.Connect.RuntimeClasses)), len(o.Connect.RuntimeClasses) > 0)
	return s
}
