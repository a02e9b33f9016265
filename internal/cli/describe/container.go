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
	"podrun.io/podrun/internal/status/contents"
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
	from, all := contents.Environment(&c)
	for i, part := range [][]contents.Field{from, all} {
		if len(part) > 0 {
			fmt.Fprintf(d.Out, "    %s:\n", []string{"Environment Variables from", "Environment"}[i])
		}
		for _, one := range part {
			d.line(6, one.Name, one.Value)
		}
	}
}

func (d *Printer) mounts(c v1.Container) {
	if len(c.VolumeMounts)+len(c.VolumeDevices) == 0 {
		return
	}
	fmt.Fprintln(d.Out, "    Mounts:")
	for _, m := range slices.SortedFunc(slices.Values(c.VolumeMounts), func(a, b v1.VolumeMount) int {
		return strings.Compare(a.MountPath, b.MountPath)
	}) {
		fmt.Fprintf(d.Out, "      %s from %s (%s)\n", plain(m.MountPath), plain(m.Name), plain(contents.How(m)))
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
			d.line(6, "Last Result", lastResult(p.kind, p.probe, s, records, now))
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

// lastResult says what a probe of a running container found last: the status says whether it succeeds, the events, of
// which each failure is one, why it does not.
func lastResult(kind string, p *v1.Probe, s *v1.ContainerStatus, records []event.Record, now time.Time) string {
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
	case kind == "Liveness" && !last.Last.IsZero() &&
		now.Sub(last.Last) > 2*time.Duration(p.PeriodSeconds+p.TimeoutSeconds)*time.Second:
		return fmt.Sprintf("no failure since the one %s ago: %s", printers.Age(last.Last, now), last.Message)
	case !last.Last.IsZero():
		return fmt.Sprintf("%s ago: %s", printers.Age(last.Last, now), last.Message)
	case kind == "Liveness":
		return "no failure since the container started"
	}
	return "none yet"
}
