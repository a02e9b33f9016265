package describe

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/contents"
	"podrun.io/podrun/internal/status/plugins"
	"podrun.io/podrun/internal/status/summary"
)

// volumes prints the volumes of a pod: the type of each and its fields, as they are in the manifest.
func (d *Printer) volumes(p *v1.Pod) {
	if len(p.Spec.Volumes) == 0 {
		return
	}
	published, err := published(d.Dirs, p)
	if err != nil {
		d.Log.Debug("the state of CSI volumes cannot be read", "err", err)
	}
	fmt.Fprintln(d.Out, "Volumes:")
	for i, v := range contents.Volumes(p) {
		fmt.Fprintf(d.Out, "  %s:\n", plain(v.Name))
		for _, field := range v.Fields {
			d.line(4, field.Name, field.Value)
		}
		if of, is := published[v.Name]; is {
			if p.Spec.Volumes[i].CSI == nil { // else it is among the fields
				d.line(4, "Driver", of.driver)
			}
			d.line(4, "VolumeHandle", of.ID)
			d.line(4, "Status", of.Status)
		}
	}
}

// ofDriver is a volume that a CSI driver has been called for.
type ofDriver struct {
	plugins.Volume
	driver string
}

// published returns the volumes of a pod that CSI drivers have been called for, by their names in the pod.
func published(dirs layout.Dirs, p *v1.Pod) (map[string]ofDriver, error) {
	all, err := plugins.List(dirs)
	of := map[string]ofDriver{}
	for _, plugin := range all {
		for _, v := range plugin.Volumes {
			if v.Pod == pod.KeyOf(p).String() {
				of[v.Name] = ofDriver{v, plugin.Name}
			}
		}
	}
	return of, err
}

// devices returns the devices that a container has, each with its health, by resource.
func devices(all []v1.ResourceStatus) map[string]string {
	texts := map[string]string{}
	for _, of := range all {
		var lines []string
		for _, one := range of.Resources {
			lines = append(lines, fmt.Sprintf("%s (%s)", one.ResourceID, one.Health))
		}
		texts[string(of.Name)] = strings.Join(lines, "\n")
	}
	return texts
}

// tolerations returns the tolerations of a pod as kubectl describe prints them.
func tolerations(all []v1.Toleration) string {
	var lines []string
	for _, t := range all {
		line := t.Key
		if t.Value != "" {
			line += "=" + t.Value
		}
		if t.Effect != "" {
			line += ":" + string(t.Effect)
		}
		if t.Operator == v1.TolerationOpExists && t.Value == "" {
			line += " op=Exists"
		}
		if t.TolerationSeconds != nil {
			line += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// plain returns text that comes from a manifest safe for a terminal, in one line.
func plain(text string) string { return summary.PlainLine(text) }
