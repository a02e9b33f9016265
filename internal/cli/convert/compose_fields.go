package convert

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod/quantity"
)

// setPorts publishes ports: [[IP:]HOST:]CONTAINER[/PROTOCOL], each a number or a range, or the long form.
func setPorts(s *service, v any) {
	for i, one := range listOf(v) {
		field := fmt.Sprintf("ports[%d]", i)
		if object, is := one.(map[string]any); is {
			ip, host := scalar(object["host_ip"]), scalar(object["published"])
			s.port(field, ip, host, scalar(object["target"]), scalar(object["protocol"]))
			continue
		}
		text, protocol, _ := strings.Cut(scalar(one), "/")
		ip, host, target := "", "", text
		if colon := strings.LastIndexByte(text, ':'); colon >= 0 {
			host, target = text[:colon], text[colon+1:]
			if colon := strings.LastIndexByte(host, ':'); colon >= 0 {
				ip, host = strings.Trim(host[:colon], "[]"), host[colon+1:]
			}
		}
		s.port(field, ip, host, target, protocol)
	}
}

func (s *service) port(field, ip, host, target, protocol string) {
	from, to, err := portRange(target)
	hostFrom, hostTo, hostErr := int32(0), int32(0), error(nil)
	if host == "" {
		s.drop(field, "no port of the machine is given: "+target+" is not published")
	} else {
		hostFrom, hostTo, hostErr = portRange(host)
	}
	if err = cmp.Or(err, hostErr); err == nil && host != "" && hostTo-hostFrom != to-from {
		err = fmt.Errorf("%s and %s have different lengths", host, target)
	}
	if err == nil && ip != "" && net.ParseIP(ip) == nil {
		err = fmt.Errorf("%q is no IP address", ip)
	}
	if err != nil {
		s.fail(field, err.Error())
		return
	}
	if ip == "0.0.0.0" || ip == "::" {
		ip = ""
	}
	for n := int32(0); n <= to-from; n++ {
		p := v1.ContainerPort{ContainerPort: from + n, HostIP: ip, Protocol: v1.Protocol(strings.ToUpper(protocol))}
		if host != "" {
			p.HostPort = hostFrom + n
		}
		s.main.Ports = append(s.main.Ports, p)
	}
}

// portRange reads a port, or a range such as 8000-8009.
func portRange(text string) (from, to int32, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return 0, 0, fmt.Errorf("%q is neither a port nor a range of ports", text)
	}
	return int32(a), int32(b), nil
}

// setVolumes mounts binds, named volumes and memory: [SOURCE:]TARGET[:MODE], or the long form.
func setVolumes(s *service, v any) {
	for i, one := range listOf(v) {
		field, name := fmt.Sprintf("volumes[%d]", i), fmt.Sprintf("volume-%d", i)
		object, long := one.(map[string]any)
		if !long {
			object = shortVolume(scalar(one))
		}
		source, target := text(object, "source"), text(object, "target")
		readOnly := *truth(object["read_only"])
		if target == "" || !strings.HasPrefix(target, "/") {
			s.fail(field, "has no path in the container")
			continue
		}
		switch kind := text(object, "type"); {
		case kind == "tmpfs":
			s.memory(name, target, "")
		case kind == "bind":
			s.hostPath(name, s.absolute(source), target, readOnly)
		case kind == "volume" && source == "":
			s.mount(name, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, target, readOnly)
		case kind == "volume":
			claim := strings.ReplaceAll(strings.ToLower(source), "_", "-")
			from := &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
			s.mount(name, v1.VolumeSource{PersistentVolumeClaim: from}, target, readOnly)
		default:
			s.fail(field, fmt.Sprintf("the type %q is not known", kind))
		}
		for _, mode := range listOf(object["modes"]) {
			s.drop(field, "the mode "+scalar(mode)+" is not converted")
		}
	}
}

// shortVolume returns the long form of a volume's short one.
func shortVolume(short string) map[string]any {
	parts := strings.Split(short, ":")
	if len(parts) == 1 {
		return map[string]any{"type": "volume", "target": short}
	}
	out := map[string]any{"type": "volume", "source": parts[0], "target": parts[1]}
	if strings.ContainsAny(parts[0][:min(1, len(parts[0]))], "./~") {
		out["type"] = "bind"
	}
	var modes []any
	for _, mode := range strings.Split(strings.Join(parts[2:], ","), ",") {
		switch mode {
		case "ro":
			out["read_only"] = true
		case "", "rw", "z", "Z", "cached", "delegated", "consistent":
		default:
			modes = append(modes, mode)
		}
	}
	out["modes"] = modes
	return out
}

func (s *service) hostPath(name, from, target string, readOnly bool) {
	s.mount(name, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: from}}, target, readOnly)
}

func (s *service) mount(name string, from v1.VolumeSource, target string, readOnly bool) {
	s.pod.Spec.Volumes = append(s.pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: from})
	mount := v1.VolumeMount{Name: name, MountPath: target, ReadOnly: readOnly}
	s.main.VolumeMounts = append(s.main.VolumeMounts, mount)
}

// memory mounts a file system in memory.
func (s *service) memory(name, target, size string) {
	dir := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
	if q, err := amount(size); err == nil {
		dir.SizeLimit = &q
	}
	s.mount(name, v1.VolumeSource{EmptyDir: dir}, target, false)
}

func setTmpfs(s *service, v any) {
	for i, one := range list(v) {
		path, options, _ := strings.Cut(one, ":")
		if options != "" {
			s.drop(fmt.Sprintf("tmpfs[%d]", i), "the options "+options+" are not converted")
		}
		s.memory(fmt.Sprintf("tmpfs-%d", i), path, "")
	}
}

func setShm(s *service, v any) {
	if _, err := amount(scalar(v)); err != nil {
		s.fail("shm_size", err.Error())
	}
	s.memory("shm", "/dev/shm", scalar(v))
}

// setHealthcheck becomes a readiness probe, which others wait for. It restarts nothing, as in compose.
func setHealthcheck(s *service, v any) {
	h, _ := v.(map[string]any)
	test := listOf(h["test"])
	if text, is := h["test"].(string); is {
		test = []any{"CMD-SHELL", text}
	}
	if *truth(h["disable"]) || len(test) == 0 || scalar(test[0]) == "NONE" {
		return
	}
	command := list(test[1:])
	if scalar(test[0]) == "CMD-SHELL" {
		command = []string{"/bin/sh", "-c", strings.Join(command, " ")}
	}
	check := &v1.ExecAction{Command: escapedAll(command)}
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: check}, FailureThreshold: 3}
	set := func(field string, standard time.Duration, to *int32) {
		d := standard
		if text := scalar(h[field]); text != "" {
			var err error
			if d, err = time.ParseDuration(text); err != nil {
				s.fail("healthcheck."+field, fmt.Sprintf("%q is no duration", text))
			}
		}
		*to = int32((d + time.Second - 1) / time.Second)
	}
	set("interval", 30*time.Second, &probe.PeriodSeconds)
	set("timeout", 30*time.Second, &probe.TimeoutSeconds)
	if n, err := strconv.ParseInt(scalar(h["retries"]), 10, 32); err == nil {
		probe.FailureThreshold = int32(n)
	} else if h["retries"] != nil {
		s.fail("healthcheck.retries", "must be a number")
	}
	for _, field := range []string{"start_period", "start_interval"} {
		if h[field] != nil {
			s.drop("healthcheck."+field, "a pod is not ready before its first success in any case")
		}
	}
	s.main.ReadinessProbe = probe
}

func (s *service) security() *v1.SecurityContext {
	if s.main.SecurityContext == nil {
		s.main.SecurityContext = &v1.SecurityContext{}
	}
	return s.main.SecurityContext
}

func (s *service) capabilities() *v1.Capabilities {
	if s.security().Capabilities == nil {
		s.main.SecurityContext.Capabilities = &v1.Capabilities{}
	}
	return s.main.SecurityContext.Capabilities
}

func (s *service) caps(v any) (out []v1.Capability) {
	for _, name := range list(v) {
		out = append(out, v1.Capability(strings.TrimPrefix(strings.ToUpper(name), "CAP_")))
	}
	return out
}

func setUser(s *service, v any) {
	user, group, both := strings.Cut(scalar(v), ":")
	uid, err := strconv.ParseInt(user, 10, 64)
	gid, groupErr := int64(0), error(nil)
	if both {
		gid, groupErr = strconv.ParseInt(group, 10, 64)
	}
	if err != nil || groupErr != nil {
		s.drop("user", fmt.Sprintf("%s: runAsUser and runAsGroup are numbers; the container runs as its image says", scalar(v)))
		return
	}
	s.security().RunAsUser = &uid
	if both {
		s.security().RunAsGroup = &gid
	}
}

func setGroups(s *service, v any) {
	for i, one := range list(v) {
		gid, err := strconv.ParseInt(one, 10, 64)
		if err != nil {
			s.drop(fmt.Sprintf("group_add[%d]", i), one+" is no number")
			continue
		}
		if s.pod.Spec.SecurityContext == nil {
			s.pod.Spec.SecurityContext = &v1.PodSecurityContext{}
		}
		s.pod.Spec.SecurityContext.SupplementalGroups = append(s.pod.Spec.SecurityContext.SupplementalGroups, gid)
	}
}

func setSecurityOpt(s *service, v any) {
	for i, one := range list(v) {
		switch strings.ReplaceAll(one, ":", "=") {
		case "no-new-privileges", "no-new-privileges=true":
			s.security().AllowPrivilegeEscalation = new(false)
		case "seccomp=unconfined":
			s.security().SeccompProfile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
		case "apparmor=unconfined":
			s.security().AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
		default:
			s.drop(fmt.Sprintf("security_opt[%d]", i), one+" is not converted")
		}
	}
}

func setNetworkMode(s *service, v any) {
	switch mode := scalar(v); mode {
	case "bridge":
	case "host":
		s.pod.Spec.HostNetwork = true
	default:
		s.drop("network_mode", mode+": containers that share a network are containers of one pod")
	}
}

func (s *service) host(field string, v any, to *bool) {
	if *to = scalar(v) == "host"; !*to {
		s.drop(field, scalar(v)+" is not converted")
	}
}

func setExtraHosts(s *service, v any) {
	for i, one := range listOf(v) {
		name, ip, found := strings.Cut(strings.Replace(scalar(one), "=", ":", 1), ":")
		if !found || net.ParseIP(strings.Trim(ip, "[]")) == nil {
			s.drop(fmt.Sprintf("extra_hosts[%d]", i), scalar(one)+" has no IP address")
			continue
		}
		alias := v1.HostAlias{IP: strings.Trim(ip, "[]"), Hostnames: []string{name}}
		s.pod.Spec.HostAliases = append(s.pod.Spec.HostAliases, alias)
	}
}

func (s *service) dns() *v1.PodDNSConfig {
	if s.pod.Spec.DNSConfig == nil {
		s.pod.Spec.DNSConfig = &v1.PodDNSConfig{}
	}
	return s.pod.Spec.DNSConfig
}

func setSysctls(s *service, v any) {
	for _, one := range pairs(v) {
		if s.pod.Spec.SecurityContext == nil {
			s.pod.Spec.SecurityContext = &v1.PodSecurityContext{}
		}
		all := &s.pod.Spec.SecurityContext.Sysctls
		*all = append(*all, v1.Sysctl{Name: one.name, Value: one.value})
	}
}

func setGrace(s *service, v any) {
	d, err := time.ParseDuration(scalar(v))
	if err != nil {
		s.fail("stop_grace_period", fmt.Sprintf("%q is no duration", scalar(v)))
		return
	}
	s.pod.Spec.TerminationGracePeriodSeconds = new(int64((d + time.Second - 1) / time.Second))
}

func setStopSignal(s *service, v any) {
	signal := v1.Signal(scalar(v))
	if !strings.HasPrefix(string(signal), "SIG") {
		signal = "SIG" + signal
	}
	s.main.Lifecycle = &v1.Lifecycle{StopSignal: &signal}
	s.pod.Spec.OS = &v1.PodOS{Name: v1.Linux} // Kubernetes requires it beside a signal
}

func setPullPolicy(s *service, v any) {
	policies := map[string]v1.PullPolicy{
		"always": v1.PullAlways, "never": v1.PullNever,
		"missing": v1.PullIfNotPresent, "if_not_present": v1.PullIfNotPresent,
	}
	policy, known := policies[scalar(v)]
	if !known {
		s.drop("pull_policy", scalar(v)+" is not converted")
	}
	s.main.ImagePullPolicy = policy
}

func setDeploy(s *service, v any) {
	deploy, _ := v.(map[string]any)
	resources := at(deploy, "resources")
	own := &s.main.Resources
	lists := map[string]*v1.ResourceList{"limits": &own.Limits, "reservations": &own.Requests}
	for _, name := range sorted(lists) {
		to, values := lists[name], at(resources, name)
		for _, field := range sorted(values) {
			path, value := "deploy.resources."+name+"."+field, values[field]
			switch field {
			case "cpus":
				s.resource(to, "cpu", path, value)
			case "memory":
				s.resource(to, "memory", path, value)
			default:
				s.drop(path, "is not converted")
			}
		}
	}
	for _, field := range sorted(deploy) {
		one := field == "replicas" && scalar(deploy[field]) == "1"
		if !one && field != "resources" {
			s.drop("deploy."+field, "one pod is made, on this machine")
		}
	}
}

func (s *service) resource(to *v1.ResourceList, name v1.ResourceName, field string, v any) {
	q, err := amount(scalar(v))
	if err != nil {
		s.fail(field, err.Error())
		return
	}
	if *to == nil {
		*to = v1.ResourceList{}
	}
	(*to)[name] = q
}

// amount reads a number with compose's units, which are powers of 1024: 64m is 64Mi.
func amount(text string) (resource.Quantity, error) {
	trimmed := strings.TrimRight(text, "bB")
	units := map[byte]string{'k': "Ki", 'K': "Ki", 'm': "Mi", 'M': "Mi", 'g': "Gi", 'G': "Gi", 't': "Ti", 'T': "Ti"}
	if last := len(trimmed) - 1; last > 0 && units[trimmed[last]] != "" {
		trimmed = trimmed[:last] + units[trimmed[last]]
	}
	q, err := quantity.Parse(trimmed)
	if err != nil {
		return q, fmt.Errorf("%q is no amount such as 0.5, 64m or 1g", text)
	}
	return q, nil
}
