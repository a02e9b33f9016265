// Package rows is what the page of all pods shows of each pod: the rows of a table, which of them a filter selects, and
// their order. The page of a pod begins with its row.
//
// Begin reading at Of.
package rows

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/server/sparkline"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/workload"
)

// Row is a pod as the page of all pods shows it.
type Row struct {
	Namespace, Name, State, Reason, IP, Manifest string
	Level                                        summary.Level
	Ready, Restarts, Age, CPU, Memory            string
	CPULine, MemoryLine                          sparkline.Line
	Containers                                   []string
	// Workload is the one that the pod was made from, as KIND NAME; "" for none.
	Workload string
	// Heading is that of the rows which begin with this one: of a workload, if rows are in the order of these.
	Heading string

	order order
}

// order is what rows are sorted by.
type order struct {
	restarts    int
	created     time.Time // when podrun saw it first
	cpu, memory uint64
}

// Of returns the current rows of the pods that a filter shows.
func Of(pods []v1.Pod, used *kubelet.Summary, before map[string]*sparkline.Course, f Filter) []Row {
	of := UsageOf(used)
	out := []Row{}
	for i := range pods {
		uid := string(pods[i].UID)
		if r := One(&pods[i], of[uid], before[uid], time.Now()); f.shows(&pods[i], &r) {
			out = append(out, r)
		}
	}
	f.sort(out)
	if f.Sort == "workload" {
		addHeadings(out)
	}
	return out
}

// addHeadings gives the first row of each workload a heading, and the first of those of none.
func addHeadings(all []Row) {
	for i := range all {
		r := &all[i]
		switch {
		case i > 0 && r.Workload == all[i-1].Workload && (r.Workload == "" || r.Namespace == all[i-1].Namespace):
		case r.Workload != "":
			r.Heading = r.Workload + " in " + r.Namespace
		default:
			r.Heading = "Pods of no workload"
		}
	}
}

// UsageOf returns the resource usage of pods, by UID. Where it cannot be read, the columns stay empty.
func UsageOf(all *kubelet.Summary) map[string]kubelet.PodStats {
	out := map[string]kubelet.PodStats{}
	if all != nil {
		for _, one := range all.Pods {
			out[one.PodRef.UID] = one
		}
	}
	return out
}

// One returns the row of a pod. taken is what it uses, and before what it used in the last hour, which may be nil.
func One(p *v1.Pod, taken kubelet.PodStats, before *sparkline.Course, now time.Time) Row {
	s := summary.Of(p)
	r := Row{
		Namespace: p.Namespace, Name: p.Name,
		State: s.Text, Reason: summary.Plain(summary.Why(p, now)), IP: p.Status.PodIP,
		Manifest: summary.Plain(p.Annotations["podrun.io/manifest"]),
		Ready:    fmt.Sprintf("%d/%d", s.Ready, s.Containers), Restarts: restarts(s, now),
		Level: s.Level(), order: order{restarts: s.Restarts},
		CPU:    OfLimit(Cores(taken.CPU), podLimit(p, v1.ResourceCPU)),
		Memory: OfLimit(Mebibytes(taken.Memory), podLimit(p, v1.ResourceMemory)),

		CPULine:    before.CPU(limitOf(p, v1.ResourceCPU)),
		MemoryLine: before.Memory(limitOf(p, v1.ResourceMemory)),
	}
	if of, is := workload.Of(p); is {
		r.Workload = string(of.Kind) + " " + of.Key.Name
	}
	if p.Status.StartTime != nil {
		r.order.created = p.Status.StartTime.Time
		r.Age = Ago(r.order.created, now)
	}
	if taken.CPU != nil && taken.CPU.UsageNanoCores != nil {
		r.order.cpu = *taken.CPU.UsageNanoCores
	}
	if taken.Memory != nil && taken.Memory.WorkingSetBytes != nil {
		r.order.memory = *taken.Memory.WorkingSetBytes
	}
	for _, c := range summary.Roles(p) {
		r.Containers = append(r.Containers, c.Container.Name)
	}
	return r
}

// restarts says how often a pod's containers have started again, when they did so last, and why.
func restarts(s summary.Summary, now time.Time) string {
	if s.LastRestart.IsZero() {
		return strconv.Itoa(s.Restarts)
	}
	return fmt.Sprintf("%d (%s ago, %s)", s.Restarts, Ago(s.LastRestart, now), summary.Plain(s.LastEnd))
}

// Cores formats CPU usage in millicores; "" if it is not known.
func Cores(s *kubelet.CPUStats) string {
	if s == nil || s.UsageNanoCores == nil {
		return ""
	}
	return fmt.Sprintf("%dm", *s.UsageNanoCores/1e6)
}

func Mebibytes(s *kubelet.MemoryStats) string {
	if s == nil || s.WorkingSetBytes == nil {
		return ""
	}
	return sparkline.Bytes(*s.WorkingSetBytes)
}

// OfLimit adds a limit to what is used; limit is nil if there is none.
func OfLimit(used string, limit *quantity.Quantity) string {
	if limit == nil || used == "" {
		return used
	}
	return used + " of " + limit.String()
}

// podLimit returns the limit of a pod: its own, or the sum of those of its containers if each has one.
func podLimit(p *v1.Pod, name v1.ResourceName) *quantity.Quantity {
	if p.Spec.Resources != nil {
		if own, is := p.Spec.Resources.Limits[name]; is {
			return &own
		}
	}
	var sum quantity.Quantity
	for _, role := range summary.Roles(p) {
		if role.Init && role.Kind() != "sidecar" {
			continue
		}
		limit := ContainerLimit(role.Container, name)
		if limit == nil {
			return nil
		}
		sum.Add(*limit)
	}
	return &sum
}

// ContainerLimit returns a limit of a container; nil if it has none.
func ContainerLimit(c *v1.Container, name v1.ResourceName) *quantity.Quantity {
	if limit, is := c.Resources.Limits[name]; is {
		return &limit
	}
	return nil
}

// limitOf returns a pod's limit; 0 if it has none.
func limitOf(p *v1.Pod, name v1.ResourceName) float64 { return Amount(podLimit(p, name), name) }

// Amount returns how much a limit is: of the CPU in thousandths of a processor, of memory in bytes; 0 if there is none.
func Amount(limit *quantity.Quantity, name v1.ResourceName) float64 {
	switch {
	case limit == nil:
		return 0
	case name == v1.ResourceCPU:
		return float64(limit.MilliValue())
	}
	return float64(limit.Value())
}
