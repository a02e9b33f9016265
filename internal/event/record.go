// Package event stores the events of pods on disk for people to read later, in one file with one
// record per line. Records are only appended; equal ones are folded when the file is read and when
// it has grown too large. The package owns the file.
//
// No decision of podrun depends on events, so a record that is lost in a power failure does no
// harm. Begin reading at [Recorder] and [Read].
package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/excerpt"
)

// Record is an event that happened once or several times. Its JSON is a line of the file.
type Record struct {
	// Kind is the kind of what Namespace and Name identify; empty: they identify the pod, or if Namespace is empty,
	// Name is the node's.
	Kind      string  `json:"kind,omitempty"`
	Namespace string  `json:"ns,omitempty"`
	Name      string  `json:"name"`
	UID       pod.UID `json:"uid,omitempty"`
	Container string  `json:"ctr,omitempty"`
	// Init reports that the container is an init container.
	Init bool `json:"init,omitempty"`
	// Node is the node on which the event happened.
	Node    string `json:"node,omitempty"`
	Warning bool   `json:"warn,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"msg,omitempty"`
	// Count is how often the event happened between First and Last.
	Count int       `json:"n"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// The limits of what is stored: records of one pod, records of all pods, and bytes of a message.
// The last one is Kubernetes' limit.
const (
	mostOfPod   = 50
	mostOfAll   = 1000
	mostMessage = 1024
)

// Similar events, which differ in their messages only, are combined as Kubernetes' EventAggregator does it (client-go:
// tools/record/events_cache.go): from the tenth on, if none came more than ten minutes after the one before.
const (
	mostSimilar = 9
	similarTime = 10 * time.Minute
	combined    = "(combined from similar events): " // begins the message, which is otherwise the newest one
)

// same is the part of a record that is equal in records of the same event.
type same struct {
	kind, namespace, name string
	uid                   pod.UID
	container, node       string
	warning               bool
	reason, message       string
}

func (r Record) same() same {
	key := same{
		kind: r.Kind, namespace: r.Namespace, name: r.Name, uid: r.UID,
		container: r.Container, node: r.Node,
		warning: r.Warning, reason: r.Reason, message: r.Message,
	}
	if strings.HasPrefix(r.Message, combined) {
		key.message = combined
	}
	return key
}

// fold merges the records of the same event, combines those of similar ones, and sorts the result by last occurrence,
// newest last.
func fold(records []Record) []Record {
	out := merge(combine(merge(records)))
	slices.SortStableFunc(out, func(a, b Record) int {
		return cmp.Or(a.Last.Compare(b.Last), a.First.Compare(b.First))
	})
	return out
}

// merge returns the records with those of the same event as one.
func merge(records []Record) []Record {
	at := map[same]int{}
	var out []Record
	for _, r := range records {
		key := r.same()
		i, seen := at[key]
		if !seen {
			at[key] = len(out)
			out = append(out, r)
			continue
		}
		o := &out[i]
		o.Count += r.Count
		if r.First.Before(o.First) {
			o.First = r.First
		}
		if r.Last.After(o.Last) {
			o.Last, o.Message = r.Last, r.Message
		}
	}
	return out
}

// combine makes the records of too many similar events those of one event. The records must be merged. Those of the
// node stay as they are: each is of another manifest.
func combine(records []Record) []Record {
	slices.SortStableFunc(records, func(a, b Record) int { return a.First.Compare(b.First) })
	type series struct {
		events int
		last   time.Time
	}
	of := map[same]series{}
	for i := range records {
		r := &records[i]
		if r.Namespace == "" {
			continue
		}
		key := r.same()
		isCombined := key.message == combined
		key.message = ""
		s := of[key]
		if r.First.Sub(s.last) > similarTime {
			s.events = 0
		}
		if r.Last.After(s.last) {
			s.last = r.Last
		}
		switch {
		case isCombined: // so there were too many before
			s.events = mostSimilar
		case s.events == mostSimilar:
			r.Message = excerpt.Of(combined+r.Message, mostMessage)
		default:
			s.events++
		}
		of[key] = s
	}
	return records
}

// trim drops the oldest records of pods that have too many, and the oldest of all if there are too
// many. The records must be folded.
func trim(records []Record) []Record {
	type name struct{ kind, namespace, name string }
	of := map[name]int{}
	var kept []Record
	for _, r := range slices.Backward(records) {
		key := name{r.Kind, r.Namespace, r.Name}
		if of[key]++; of[key] > mostOfPod || len(kept) == mostOfAll {
			continue
		}
		kept = append(kept, r)
	}
	slices.Reverse(kept)
	return kept
}

// decode parses lines. A line that is incomplete or of an unknown format is skipped.
func decode(data []byte) []Record {
	var records []Record
	for line := range bytes.Lines(data) {
		var r Record
		if json.Unmarshal(line, &r) == nil && r.Name != "" && r.Reason != "" && r.Count > 0 {
			records = append(records, r)
		}
	}
	return records
}

func encode(records []Record) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// Event returns the record as a Kubernetes Event.
func (r Record) Event() v1.Event {
	version, kind, namespace := "v1", cmp.Or(r.Kind, "Pod"), r.Namespace
	if namespace == "" {
		kind, namespace = "Node", metav1.NamespaceDefault
	}
	switch {
	case r.Kind == "Job" || r.Kind == "CronJob":
		version = "batch/v1"
	case r.Kind != "":
		version = "apps/v1"
	}
	e := v1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v", r.same())
	e.Name, e.Namespace = r.Name+"."+strconv.FormatUint(h.Sum64(), 16), namespace
	e.CreationTimestamp = metav1.Time{Time: r.First}
	e.InvolvedObject = v1.ObjectReference{
		APIVersion: version, Kind: kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID,
	}
	if r.Container != "" {
		e.InvolvedObject.FieldPath = "spec.containers{" + r.Container + "}"
		if r.Init {
			e.InvolvedObject.FieldPath = "spec.initContainers{" + r.Container + "}"
		}
	}
	e.Reason, e.Message, e.Type = r.Reason, r.Message, v1.EventTypeNormal
	if r.Warning {
		e.Type = v1.EventTypeWarning
	}
	e.Source = v1.EventSource{Component: "podrun", Host: r.Node}
	e.ReportingController, e.ReportingInstance = "podrun", r.Node
	e.FirstTimestamp, e.LastTimestamp, e.Count = metav1.Time{Time: r.First}, metav1.Time{Time: r.Last}, int32(r.Count)
	return e
}
