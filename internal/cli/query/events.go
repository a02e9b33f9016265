package query

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/event"
)

// EventSelection selects events.
type EventSelection struct {
	Namespace     string
	AllNamespaces bool
	Types         []string // Normal or Warning; none selects both
	Pod           string   // name of a pod, full or in its manifest, or TYPE/NAME; "" selects all events
}

// Events returns the events that s selects, oldest first.
func Events(dirs layout.Dirs, s EventSelection) ([]v1.Event, error) {
	records, err := event.Read(dirs)
	if err != nil {
		return nil, err
	}
	selected, nodes := []v1.Event{}, map[string]bool{}
	for _, r := range records {
		nodes[strings.ToLower(r.Node)] = true // down records no node name in its events
	}
	for _, r := range records {
		e := r.Event()
		node, suffixed := strings.CutPrefix(r.Name, s.Pod+"-")
		named := s.Pod == "" || r.Namespace != "" && r.Kind == "" &&
			(r.Name == s.Pod || suffixed && node != "" && nodes[node])
		if of, is := WorkloadName(r.Namespace, s.Pod); is {
			named = r.Kind == string(of.Kind) && r.Name == of.Key.Name
		}
		if named && (s.AllNamespaces || e.Namespace == s.Namespace) &&
			(len(s.Types) == 0 || slices.Contains(s.Types, e.Type)) {
			selected = append(selected, e)
		}
	}
	return selected, nil
}
