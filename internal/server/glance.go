package server

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/server/rows"
	"podrun.io/podrun/internal/server/sparkline"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/workload"
)

// nodeData is the machine as the page shows it.
type nodeData struct {
	Name, Versions, Up, Checks string

	Meters  []meterData
	Sources []sourceData
}

// sourceData is a source of manifests as the page shows it.
type sourceData struct {
	Name, State, Revision, Documents string
	Read                             time.Time
	Well                             bool
}

// sourcesOf returns the sources of manifests as the page shows them.
func sourcesOf(all []Source) (out []sourceData) {
	for _, s := range all {
		d := sourceData{Name: summary.Plain(s.Name), State: "Read", Revision: s.Revision, Read: s.Read, Well: true}
		d.Documents = fmt.Sprintf("%d pods, %d others", s.Pods, s.Others)
		if s.Wrong > 0 {
			d.State, d.Well = fmt.Sprintf("Read; %d cannot be used", s.Wrong), false
		}
		if s.Error != "" {
			d.State, d.Well = "Cannot be read since "+formatTime(s.Since)+": "+summary.Plain(s.Error), false
		}
		if s.Read.IsZero() {
			d.Documents = ""
		}
		out = append(out, d)
	}
	return out
}

// meterData is something of which the machine has so much, and of which so much is used: a bar, and what it says.
type meterData struct {
	Name, Text  string
	Used, Whole uint64 // in one unit; Whole is 0 if it is not known
	Line        sparkline.Line
	Pressed     string // why it is too little
}

// nodeOf returns the machine as the page shows it; used is what it uses now, and before what it used.
func nodeOf(m Machine, used *kubelet.NodeStats, before *sparkline.Course, pods []v1.Pod, now time.Time) nodeData {
	d := nodeData{Name: m.Name, Versions: "podrun " + m.Version, Sources: sourcesOf(m.Sources)}
	for _, other := range []struct{ name, version string }{{"containerd", m.Containerd}, {"Linux", m.Kernel}} {
		if other.version != "" {
			d.Versions += ", " + other.name + " " + summary.Plain(other.version)
		}
	}
	if !m.Since.IsZero() {
		d.Up = "podrun " + rows.Ago(m.Since, now)
		if booted := used.StartTime.Time; !booted.IsZero() {
			d.Up += ", the machine " + rows.Ago(booted, now)
		}
	}
	reserved := reservationsOf(pods)
	cpu := meterData{Name: "CPU", Text: strconv.Itoa(m.Processors), Whole: uint64(m.Processors) * 1000}
	if use := rows.Cores(used.CPU); use != "" {
		cpu.Used, cpu.Text = *used.CPU.UsageNanoCores/1e6, use+" of "+strconv.Itoa(m.Processors*1000)+"m"
	}
	cpu.Text += reserved.of(v1.ResourceCPU)
	cpu.Line = before.CPU(float64(cpu.Whole))
	d.Meters = []meterData{cpu}
	if memory := used.Memory; memory != nil && memory.WorkingSetBytes != nil {
		of := meterData{Name: "Memory", Text: rows.Mebibytes(memory), Used: *memory.WorkingSetBytes}
		if memory.AvailableBytes != nil {
			of.Whole = of.Used + *memory.AvailableBytes
			of.Text += " of " + sparkline.Bytes(of.Whole)
		}
		of.Text += reserved.of(v1.ResourceMemory)
		of.Line = before.Memory(float64(of.Whole))
		d.Meters = append(d.Meters, of)
	}
	if most := used.Rlimit; most != nil && most.MaxPID != nil && most.NumOfRunningProcesses != nil {
		d.Meters = append(d.Meters, meterData{
			Name: "PIDs", Text: fmt.Sprintf("%d of %d", *most.NumOfRunningProcesses, *most.MaxPID),
			Used: uint64(*most.NumOfRunningProcesses), Whole: uint64(*most.MaxPID),
		})
	}
	for _, disk := range m.Disks {
		if disk.Capacity <= 0 {
			continue
		}
		of := meterData{
			Name: disk.Name, Used: uint64(disk.Capacity - disk.Free), Whole: uint64(disk.Capacity),
			Text: fmt.Sprintf("%d %% of %s free", disk.Free*100/disk.Capacity, sparkline.Bytes(uint64(disk.Capacity))),
		}
		if disk.Pressed {
			of.Pressed = "too little: disk pressure"
		}
		d.Meters = append(d.Meters, of)
	}
	return d
}

// checksOf returns in a line which checks have passed and which have not.
func checksOf(all []Check) string {
	var passed, failed []string
	seen := map[string]bool{}
	for _, c := range all {
		switch {
		case c.Err != nil && !slices.Contains(failed, c.Name):
			failed = append(failed, c.Name)
		case c.Err == nil && !seen[c.Name]:
			passed = append(passed, c.Name)
		}
		seen[c.Name] = true
	}
	text := strings.Join(passed, ", ") + " passed"
	if len(failed) > 0 {
		text += "; " + strings.Join(failed, ", ") + " failed"
	}
	return text
}

// reservations are what the pods that have not ended request and are limited to, in sum. Containers without a limit
// count as nothing.
type reservations struct{ requests, limits v1.ResourceList }

func reservationsOf(pods []v1.Pod) reservations {
	r := reservations{v1.ResourceList{}, v1.ResourceList{}}
	add := func(sum, one v1.ResourceList) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			total := sum[name]
			total.Add(one[name])
			sum[name] = total
		}
	}
	for i := range pods {
		if phase := pods[i].Status.Phase; phase == v1.PodSucceeded || phase == v1.PodFailed {
			continue
		}
		options := resourcehelper.PodResourcesOptions{}
		add(r.requests, resourcehelper.PodRequests(&pods[i], options))
		add(r.limits, resourcehelper.PodLimits(&pods[i], options))
	}
	return r
}

// of returns what is reserved of a resource, as the page shows it.
func (r reservations) of(name v1.ResourceName) string {
	show := func(what string, q quantity.Quantity) string {
		switch {
		case q.IsZero():
			return ""
		case name == v1.ResourceMemory:
			return "; " + what + " " + sparkline.Bytes(uint64(q.Value()))
		}
		return fmt.Sprintf("; %s %dm", what, q.MilliValue())
	}
	return show("requests", r.requests[name]) + show("limits", r.limits[name])
}

// verdict says in a line whether the machine is well, and if not, what is not.
type verdict struct {
	Well bool
	Text string
}

// verdictOf returns the verdict on what the page of all pods shows, and on the checks.
func verdictOf(d listData, pods []v1.Pod, checks []Check) verdict {
	var wrong []string
	count := func(n int, what string) {
		switch {
		case n == 1:
			wrong = append(wrong, "1 "+what)
		case n > 1:
			wrong = append(wrong, fmt.Sprintf("%d %ss", n, what))
		}
	}
	ill, waiting := 0, 0
	for i := range pods {
		switch summary.Of(&pods[i]).Level() {
		case summary.Ill:
			// A failed attempt of a Job is its Job's affair.
			if of, is := workload.Of(&pods[i]); !is || of.Kind != workload.Job || pods[i].Status.Phase != v1.PodFailed {
				ill++
			}
		case summary.Waiting:
			waiting++
		}
	}
	count(ill, "pod")
	failed := 0
	for _, w := range d.Workloads {
		if w.Kind == string(workload.Job) && !w.Well {
			failed++
		}
	}
	count(failed, "Job")
	count(len(d.Problems), "manifest")
	plugins := 0
	for _, p := range d.Plugins {
		if !p.Well {
			plugins++
		}
	}
	count(plugins, "plugin")
	seen := map[string]bool{"manifests": true} // which are counted
	for _, c := range checks {
		if c.Err != nil && !seen[c.Name] {
			seen[c.Name] = true
			wrong = append(wrong, summary.Plain(c.Name+": "+c.Err.Error()))
		}
	}
	switch {
	case len(wrong) > 0:
		return verdict{Text: "Not well: " + strings.Join(wrong, ", ")}
	case waiting > 0:
		return verdict{Well: true, Text: fmt.Sprintf("Well; not ready yet: %d of %d pods.", waiting, len(pods))}
	}
	return verdict{Well: true, Text: "All is well."}
}
