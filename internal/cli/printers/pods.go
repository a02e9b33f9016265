package printers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// PodOptions select how pods are printed.
type PodOptions struct {
	Format        Format
	Single        bool // print a pod that was named as an object, not as a list
	NoHeaders     bool
	AllNamespaces bool
	ShowLabels    bool
}

// Pods prints pods in one format.
type Pods struct {
	Format
	single  bool
	columns columns
	table   *Table
	headed  bool
	// printed are the last versions of the pods that Changes has printed.
	printed map[pod.Key]printedPod
}

// printedPod is the last version of a pod that was printed.
type printedPod struct {
	pod  *v1.Pod
	text []byte
}

// NewPods returns a printer of pods.
func NewPods(out io.Writer, o PodOptions) *Pods {
	v := &Pods{
		Format:  o.Format,
		single:  o.Single,
		table:   NewTable(out),
		headed:  o.NoHeaders,
		columns: columns{o.AllNamespaces, o.Format.kind == "wide", o.ShowLabels},
		printed: map[pod.Key]printedPod{},
	}
	if v.Tabular() {
		v.table.paint = map[int]func(string) string{v.columns.status(): statusColour(out)}
	}
	return v
}

// List prints pods once.
func (v *Pods) List(pods []*v1.Pod) error {
	if v.rows() {
		return v.printRows(pods)
	}
	if v.isName() {
		for _, p := range pods {
			if err := v.object(p); err != nil {
				return err
			}
		}
		return nil
	}
	if v.single && len(pods) == 1 {
		return v.object(pods[0])
	}
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return v.object(list)
}

func (v *Pods) printRows(pods []*v1.Pod) error {
	var rows [][]string
	header := v.columns.header()
	if v.custom != nil {
		header = v.headers()
	}
	if !v.headed {
		rows = append(rows, header)
		v.headed = true
	}
	for _, p := range pods {
		if v.custom == nil {
			rows = append(rows, v.columns.row(p, time.Now()))
			continue
		}
		row, err := v.customRow(p)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return v.table.Print(rows...)
}

// object prints one pod, or a list of pods.
func (v *Pods) object(object any) error {
	var b []byte
	var err error
	if p, ok := object.(*v1.Pod); ok && v.isName() {
		b = []byte("pod/" + p.Name + "\n")
	} else {
		b, err = v.Marshal(object)
	}
	if err != nil {
		return err
	}
	_, err = cli.ForTerminal(v.table.out).Write(b)
	return err
}

// Printed reports whether Changes has printed a pod that still exists.
func (v *Pods) Printed() bool { return len(v.printed) > 0 }

// Changes prints the pods that differ from those that it printed before, and a last entry with the
// phase Deleted for each pod that was removed.
func (v *Pods) Changes(pods []*v1.Pod) error {
	now := map[pod.Key]bool{}
	var changed []*v1.Pod
	for _, p := range pods {
		key := pod.KeyOf(p)
		now[key] = true
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, v.printed[key].text) {
			v.printed[key] = printedPod{p, text}
			changed = append(changed, p)
		}
	}
	for key, s := range v.printed {
		if !now[key] {
			delete(v.printed, key)
			s.pod.Status = v1.PodStatus{Phase: "Deleted", StartTime: s.pod.Status.StartTime, PodIP: s.pod.Status.PodIP}
			s.pod.DeletionTimestamp = nil
			changed = append(changed, s.pod)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if v.rows() {
		return v.printRows(changed)
	}
	for _, p := range changed {
		if err := v.object(p); err != nil {
			return err
		}
	}
	return nil
}

// PodItems returns pods as items, and the headers of their rows.
func PodItems(pods []*v1.Pod, f Format, showLabels bool) (header []string, items []Item) {
	c := columns{wide: f.kind == "wide", labels: showLabels}
	for _, p := range pods {
		items = append(items, Item{
			Resource: "pod", Namespace: p.Namespace, Name: p.Name, Object: p, Row: c.row(p, time.Now()),
		})
	}
	return c.header(), items
}

// columns selects the columns of the table of pods.
type columns struct{ namespace, wide, labels bool }

// status returns the index of the STATUS column.
func (c columns) status() int {
	if c.namespace {
		return 3
	}
	return 2
}

func (c columns) header() []string {
	row := []string{"NAME", "READY", "STATUS", "RESTARTS", "AGE"}
	if c.wide {
		row = append(row, "IP", "NODE", "MANIFEST")
	}
	if c.labels {
		row = append(row, "LABELS")
	}
	row = append(row, "REASON") // the last column is the one that is cut off
	if c.namespace {
		row = append([]string{"NAMESPACE"}, row...)
	}
	return row
}

func (c columns) row(p *v1.Pod, now time.Time) []string {
	s := summary.Of(p)
	restarts := strconv.Itoa(s.Restarts)
	if s.Restarts > 0 && !s.LastRestart.IsZero() {
		restarts += " (" + Age(s.LastRestart, now) + " ago)"
	}
	created := p.CreationTimestamp.Time
	if created.IsZero() && p.Status.StartTime != nil {
		created = p.Status.StartTime.Time
	}
	row := []string{p.Name, fmt.Sprintf("%d/%d", s.Ready, s.Containers), s.Text, restarts, Age(created, now)}
	if c.wide {
		row = append(row, OrNone(p.Status.PodIP), OrNone(p.Spec.NodeName), cell(p))
	}
	if c.labels {
		row = append(row, OrNone(labels.Set(p.Labels).String()))
	}
	row = append(row, summary.Why(p, now))
	if c.namespace {
		row = append([]string{p.Namespace}, row...)
	}
	return row
}

// cell returns the MANIFEST column of a pod: the path of its manifest, and a short form of the
// error in it.
func cell(p *v1.Pod) string {
	path, wrong := manifest.OriginOf(p).Path, p.Annotations[manifest.AnnotationError]
	if wrong == "" {
		return OrNone(path)
	}
	if other, _, twice := strings.Cut(wrong, ": pod "+p.Namespace+"/"+p.Name+" is also in "); twice &&
		!strings.Contains(other, "\n") {
		return path + " (also in " + other + ")"
	}
	rest, _ := strings.CutPrefix(wrong, path+":")
	line, _, _ := strings.Cut(rest, ":")
	if _, err := strconv.Atoi(line); err != nil {
		return path + " (bad)"
	}
	return path + " (bad: line " + line + ")"
}
