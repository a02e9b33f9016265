package flags

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"podrun.io/podrun/internal/agent"
)

// Config returns what a serve with these options shows at /configz: as kubeletconfig the settings that a
// kubelet has too, under its names, and as podrun the others. It has no secrets: neither headers nor
// tokens nor the arguments of commands.
func Config(o agent.Options) map[string]any {
	return map[string]any{"kubeletconfig": kubeletConfig(o), "podrun": ownConfig(o)}
}

// settings are names and values in JSON.
type settings map[string]any

// add adds a setting unless it has no value, as Kubernetes leaves out what is empty.
func (s settings) add(name string, value any, is bool) {
	if is {
		s[name] = value
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
	s.add("containerRuntimeEndpoint", "unix://"+o.Connect.Address, o.Connect.Address != "" && o.Connect.Address[0] == '/')
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
func ownConfig(o agent.Options) settings {
	manifests, _ := o.Sources.Shown()
	s := settings{
		"nodeName": o.NodeName, "rootDir": o.Dirs.Root, "runDir": o.Dirs.Run,
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
	s.add("snapshotter", o.Connect.Snapshotter, o.Connect.Snapshotter != "")
	s.add("cniConfDir", o.CNIConfDir, o.CNIConfDir != "")
	s.add("runtimeClasses", slices.Sorted(maps.Keys(o.Connect.RuntimeClasses)), len(o.Connect.RuntimeClasses) > 0)
	return s
}
