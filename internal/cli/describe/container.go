package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/event"
)

// ports prints the ports that a container declares.
func (d *Printer) ports(all []v1.ContainerPort) {
	var inside, outside []string
	for _, p := range all {
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = string(v1.ProtocolTCP)
		}
		port := fmt.Sprintf("%d/%s", p.ContainerPort, protocol)
		if p.Name != "" {
			port += " (" + p.Name + ")"
		}
		inside = append(inside, port)
		if p.HostPort != 0 {
			outside = append(outside, strings.TrimPrefix(fmt.Sprintf("%s:%d/%s", p.HostIP, p.HostPort, protocol), ":"))
		}
	}
	plural := ""
	if len(all) > 1 {
		plural = "s"
	}
	d.line(4, "Port"+plural, strings.Join(inside, ", "))
	d.line(4, "Host Port"+plural, strings.Join(outside, ", "))
}

// block prints a title and a line for each entry of a map below it.
func (d *Printer) block(title string, entries map[string]string) {
	if len(entries) == 0 {
		return
	}
	fmt.Fprintf(d.Out, "    %s:\n", title)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		d.line(6, name, entries[name])
	}
}

func quantities(list v1.ResourceList) map[string]string {
	texts := map[string]string{}
	for name, quantity := range list {
		texts[string(name)] = quantity.String()
	}
	return texts
}

// environment prints the environment variables of a container, those from Secrets without their values.
func (d *Printer) environment(c v1.Container) {
	if len(c.EnvFrom) > 0 {
		fmt.Fprintln(d.Out, "    Environment Variables from:")
	}
	for _, from := range c.EnvFrom {
		name, kind, optional := "", "", (*bool)(nil)
		switch {
		case from.ConfigMapRef != nil:
			name, kind, optional = from.ConfigMapRef.Name, "ConfigMap", from.ConfigMapRef.Optional
		case from.SecretRef != nil:
			name, kind, optional = from.SecretRef.Name, "Secret", from.SecretRef.Optional
		}
		if from.Prefix != "" {
			kind += " with prefix '" + from.Prefix + "'"
		}
		d.line(6, name, kind+orOptional(optional))
	}
	if len(c.Env) == 0 {
		return
	}
	fmt.Fprintln(d.Out, "    Environment:")
	for _, variable := range c.Env {
		value := variable.Value
		if value == "" {
			value = `""`
		}
		if variable.ValueFrom != nil {
			value = origin(variable.ValueFrom)
		}
		d.line(6, variable.Name, value)
	}
}

// origin says where the value of an environment variable comes from.
func origin(from *v1.EnvVarSource) string {
	switch {
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in secret '%s'>", from.SecretKeyRef.Key, from.SecretKeyRef.Name) +
			orOptional(from.SecretKeyRef.Optional)
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' of config map '%s'>", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name) +
			orOptional(from.ConfigMapKeyRef.Optional)
	case from.FieldRef != nil:
		return "(" + from.FieldRef.FieldPath + ")"
	case from.ResourceFieldRef != nil:
		return strings.TrimSpace(from.ResourceFieldRef.ContainerName + " (" + from.ResourceFieldRef.Resource + ")")
	case from.FileKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in file '%s' of volume '%s'>", from.FileKeyRef.Key, from.FileKeyRef.Path,
			from.FileKeyRef.VolumeName)
	}
	return "<unknown>"
}

func orOptional(optional *bool) string {
	if optional != nil && *optional {
		return " (optional)"
	}
	return ""
}

func (d *Printer) mounts(c v1.Container) {
	if len(c.VolumeMounts)+len(c.VolumeDevices) == 0 {
		return
	}
	fmt.Fprintln(d.Out, "    Mounts:")
	for _, m := range slices.SortedFunc(slices.Values(c.VolumeMounts), func(a, b v1.VolumeMount) int {
		return strings.Compare(a.MountPath, b.MountPath)
	}) {
		how := "rw"
		if m.ReadOnly {
			how = "ro"
		}
		if path := m.SubPath + m.SubPathExpr; path != "" {
			how += fmt.Sprintf(",path=%q", path)
		}
		fmt.Fprintf(d.Out, "      %s from %s (%s)\n", plain(m.MountPath), plain(m.Name), plain(how))
	}
	for _, dev := range c.VolumeDevices {
		fmt.Fprintf(d.Out, "      %s from %s (device)\n", plain(dev.DevicePath), plain(dev.Name))
	}
}

// probes prints the probes of a container, each with its last result.
func (d *Printer) probes(c v1.Container, s *v1.ContainerStatus, records []event.Record, now time.Time) {
	for _, p := range []struct {
		kind  string
		probe *v1.Probe
	}{{"Startup", c.StartupProbe}, {"Liveness", c.LivenessProbe}, {"Readiness", c.ReadinessProbe}} {
		if p.probe == nil {
			continue
		}
		d.line(4, p.kind, probeText(p.probe))
		if s != nil && s.State.Running != nil {
			d.line(6, "Last Result", lastResult(p.kind, s, records, now))
		}
	}
}

// probeText returns a probe as kubectl describe prints it.
func probeText(p *v1.Probe) string {
	action := "unknown"
	switch {
	case p.Exec != nil:
		action = fmt.Sprintf("exec %v", p.Exec.Command)
	case p.HTTPGet != nil:
		scheme := strings.ToLower(string(p.HTTPGet.Scheme))
		if scheme == "" {
			scheme = "http"
		}
		path := "/" + strings.TrimPrefix(p.HTTPGet.Path, "/")
		action = fmt.Sprintf("http-get %s://%s:%s%s", scheme, p.HTTPGet.Host, p.HTTPGet.Port.String(), path)
	case p.TCPSocket != nil:
		action = fmt.Sprintf("tcp-socket %s:%s", p.TCPSocket.Host, p.TCPSocket.Port.String())
	case p.GRPC != nil:
		action = fmt.Sprintf("grpc <pod>:%d", p.GRPC.Port)
		if p.GRPC.Service != nil {
			action += " " + *p.GRPC.Service
		}
	}
	return fmt.Sprintf("%s delay=%ds timeout=%ds period=%ds #success=%d #failure=%d", action, p.InitialDelaySeconds,
		p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
}

// lastResult says what a probe of a running container found last: the status says whether it succeeds, the events
// why it does not.
func lastResult(kind string, s *v1.ContainerStatus, records []event.Record, now time.Time) string {
	var last event.Record
	for _, r := range records {
		if r.Container == s.Name && r.Reason == "Unhealthy" && strings.HasPrefix(r.Message, kind+" probe ") &&
			!r.Last.Before(s.State.Running.StartedAt.Time) && r.Last.After(last.Last) {
			last = r
		}
	}
	started := s.Started != nil && *s.Started
	switch {
	case kind == "Startup" && started, kind == "Readiness" && s.Ready:
		return "success"
	case kind != "Startup" && !started:
		return "none: the container has not started up"
	case !last.Last.IsZero():
		return fmt.Sprintf("%s ago: %s", printers.Age(last.Last, now), last.Message)
	case kind == "Liveness":
		return "no failure since the container started"
	}
	return "none yet"
}
