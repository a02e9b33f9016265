package list

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/printers"
)

// EventFlags are the flags of podrun events.
type EventFlags struct {
	Flags
	Types []string
	Pod   string
}

// AddTo adds the flags to f.
func (e *EventFlags) AddTo(f *pflag.FlagSet) {
	f.StringVarP(&e.Namespace, "namespace", "n", "default", "namespace of the pods")
	f.BoolVarP(&e.AllNamespaces, "all-namespaces", "A", false, "events of all namespaces")
	f.BoolVarP(&e.Watch, "watch", "w", false, "after listing the events, watch for new ones")
	f.StringVarP(&e.Output, "output", "o", "", "output format: "+printers.Formats)
	f.StringVar(&e.Pod, "for", "",
		"show only the events of a pod, given as pod/NAME; the same as the argument POD")
	f.StringSliceVar(&e.Types, "types", nil, "show only events of these types: Normal, Warning")
	f.BoolVar(&e.NoHeaders, "no-headers", false, "do not print headers")
}

// Checked checks and normalizes the flags, and returns what they mean. name is the pod whose events are shown, or "".
func (e *EventFlags) Checked(name string) (Options, error) {
	if err := e.check(name); err != nil {
		return Options{}, err
	}
	return e.Options()
}

func (e *EventFlags) check(name string) error {
	for i, t := range e.Types {
		e.Types[i] = strings.ToUpper(t[:min(1, len(t))]) + strings.ToLower(t[min(1, len(t)):])
		if e.Types[i] != v1.EventTypeNormal && e.Types[i] != v1.EventTypeWarning {
			return fmt.Errorf("--types %q: must be Normal or Warning", t)
		}
	}
	if e.AllNamespaces && name != "" {
		return errors.New("the events of one pod cannot be shown across all namespaces")
	}
	return nil
}
