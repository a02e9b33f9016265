package top

import "unicode/utf8"

// fit is how a table of what is used again and again fits a terminal. Figures come first: before any of them is cut
// off, lines get shorter, then the names of pods, and then there are no lines.
type fit struct {
	columns int // of each line; 0 for no lines
	pod     int // how many characters of a pod's name there are; 0 for all
}

const (
	figures = len("CPU(cores)   MEMORY(bytes)")
	gapped  = 3 // spaces between two columns
	// fewest is how many columns a line has at least.
	fewest = 8
	// shortest is how many characters of a pod's name there are at least beside lines.
	shortest = 20
)

// fitOf returns what fits a terminal's width; 0 for no terminal.
func fitOf(all []Usage, width int, o Options) fit {
	if width == 0 {
		return fit{columns: samples}
	}
	namespace, pod, name := 0, len("POD"), len("NAME")
	for _, u := range all {
		namespace = max(namespace, utf8.RuneCountInString(u.pod.Namespace))
		pod = max(pod, utf8.RuneCountInString(u.pod.Name))
		name = max(name, utf8.RuneCountInString(u.name))
	}
	left := width - figures - gapped - name - gapped
	if o.AllNamespaces {
		left -= max(namespace, len("NAMESPACE")) + gapped
	}
	switch columns := (left-pod)/2 - gapped; {
	case columns >= fewest:
		return fit{columns: min(columns, samples)}
	case left-2*(fewest+gapped) >= shortest:
		return fit{columns: fewest, pod: left - 2*(fewest+gapped)}
	}
	return fit{pod: max(left, shortest/2)}
}

// short returns the name of a pod without its middle if it is too long: its end tells replicas apart.
func (l fit) short(name string) string {
	all := []rune(name)
	if l.pod == 0 || len(all) <= l.pod {
		return name
	}
	end := (l.pod - 1) / 2
	return string(all[:l.pod-1-end]) + "…" + string(all[len(all)-end:])
}
