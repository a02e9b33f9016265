// Package detail says what a pod's page shows of its manifest, its ports and its probes.
//
// It reads nothing. Begin reading at Manifests.
package detail

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/changes"
	"podrun.io/podrun/internal/manifest/edits"
	"podrun.io/podrun/internal/manifest/minimal"
	"podrun.io/podrun/internal/manifest/rollback"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/sys/memo"
	"podrun.io/podrun/internal/workload/revisions"
)

// Port is a port of a container; Link is "" unless it speaks HTTP and can be reached from where the page is.
type Port struct{ Text, Link string }

// Revision is a revision of a pod's manifest.
type Revision struct {
	ID, Result, Reason string
	// At is when it had its result or, if it has none, when it began.
	At      time.Time
	Current bool
}

// Manifest is a pod's manifest as it was written, without what podrun adds, and what of it does not run yet: More are
// the edits that are left out.
type Manifest struct {
	Text      string
	Edits     []edits.Edit
	More      int
	Revisions []Revision // the newest first
}

// Manifests makes manifests. It keeps the texts of some: an open page asks each second.
type Manifests struct{ texts memo.Map[*v1.Pod, string] }

// NewManifests returns a Manifests.
func NewManifests() *Manifests {
	m := &Manifests{}
	m.texts.Limit(32)
	return m
}

// text returns the manifest of a pod that is wanted, which does not change; "" if there is none.
func (m *Manifests) text(want *v1.Pod) string {
	if text, there := m.texts.Get(want); there {
		return text
	}
	text, _ := minimal.Manifest(want, false) // what has no manifest is shown without one
	out := summary.Plain(string(text))
	m.texts.Put(want, out)
	return out
}

// Of returns the manifest of a pod. One that is not desired has none.
func (m *Manifests) Of(d manifest.Desired, of *v1.Pod) (out Manifest) {
	key := pod.KeyOf(of)
	want := d.Pods[key]
	if want == nil {
		return out
	}
	out.Text = m.text(want)
	for _, c := range changes.Of(manifest.Desired{Pods: map[pod.Key]*v1.Pod{key: want}, Complete: true},
		map[pod.Key]*v1.Pod{key: of}) {
		out.More += c.More
		for _, e := range c.Edits {
			e.Field, e.Old, e.New = summary.Plain(e.Field), summary.Plain(e.Old), summary.Plain(e.New)
			out.Edits = append(out.Edits, e)
		}
	}
	history := d.Revisions[rollback.Of(want)]
	if history == nil {
		return out
	}
	current, all := history.Outcomes()
	for _, one := range slices.Backward(all) {
		at := one.Ended
		if one.Result == revisions.Progressing {
			at = one.Began
		}
		out.Revisions = append(out.Revisions, Revision{
			revisions.Short(one.ID), string(one.Result), summary.Plain(one.Reason), at, one.ID == current,
		})
		if one.ID == current {
			current = "" // it may have been tried before
		}
	}
	return out
}

// Probes returns the probes of a container with their last results, which last returns by the probe's name; "" if it
// has not been run.
func Probes(c *v1.Container, last func(probe string) (result string, since time.Time)) (out []string) {
	for _, one := range []struct {
		name  string
		probe *v1.Probe
	}{{"Startup", c.StartupProbe}, {"Liveness", c.LivenessProbe}, {"Readiness", c.ReadinessProbe}} {
		if one.probe == nil {
			continue
		}
		text := one.name + ": not run yet"
		if result, since := last(one.name); result != "" {
			text = one.name + ": " + result + " since " + since.UTC().Format("2006-01-02 15:04:05Z")
		}
		out = append(out, text)
	}
	return out
}

// Ports returns the ports of a container. host is that by which the page was asked for, "" for none.
func Ports(p *v1.Pod, c *v1.Container, host string) (out []Port) {
	for _, one := range c.Ports {
		number := strconv.Itoa(int(one.ContainerPort))
		r := Port{Text: number}
		if one.Protocol != "" && one.Protocol != v1.ProtocolTCP {
			r.Text += "/" + string(one.Protocol)
		}
		if one.Name != "" {
			r.Text = one.Name + " " + r.Text
		}
		at := one.HostPort
		if p.Spec.HostNetwork {
			at = one.ContainerPort
		}
		if at != 0 && !p.Spec.HostNetwork {
			r.Text += " at the machine's " + strconv.Itoa(int(at))
		}
		if scheme := schemeOf(c, &one); at != 0 && host != "" && scheme != "" {
			r.Link = scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(at))) + "/"
		}
		out = append(out, r)
	}
	return out
}

// schemeOf returns http or https if a port is one of HTTP by its name, its number or a probe; else "".
func schemeOf(c *v1.Container, port *v1.ContainerPort) string {
	if port.Protocol != "" && port.Protocol != v1.ProtocolTCP {
		return ""
	}
	for _, probe := range []*v1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
		if probe == nil || probe.HTTPGet == nil {
			continue
		}
		at := probe.HTTPGet.Port
		if at.IntValue() == int(port.ContainerPort) || at.StrVal != "" && at.StrVal == port.Name {
			if probe.HTTPGet.Scheme == v1.URISchemeHTTPS {
				return "https"
			}
			return "http"
		}
	}
	secure := port.ContainerPort == 443 || port.ContainerPort == 8443
	switch {
	case strings.HasPrefix(port.Name, "https"), port.Name == "" && secure:
		return "https"
	case strings.HasPrefix(port.Name, "http"), port.Name == "web",
		port.Name == "" && (port.ContainerPort == 80 || port.ContainerPort == 8080):
		return "http"
	}
	return ""
}
