package flags

import (
	"errors"

	"github.com/spf13/pflag"
)

// Pods are the flags that select pods, as those of kubectl.
type Pods struct {
	Namespace     string
	AllNamespaces bool
	Selector      string
	Files         []string
}

// Add adds the flags to f.
func (p *Pods) Add(f *pflag.FlagSet) {
	f.StringVarP(&p.Namespace, "namespace", "n", "default", "namespace of the pods")
	f.BoolVarP(&p.AllNamespaces, "all-namespaces", "A", false, "pods of all namespaces")
	f.StringVarP(&p.Selector, "selector", "l", "", "label selector: app=web,tier!=cache, env in (a,b), !old")
}

// AddFiles adds the flag for pods of manifests to f.
func (p *Pods) AddFiles(f *pflag.FlagSet) {
	f.StringArrayVarP(&p.Files, "filename", "f", nil,
		"the pods of these manifests: a file, a directory, or - for standard input; repeatable")
}

// Check returns an error if the flags contradict each other or the names of pods in the arguments.
func (p *Pods) Check(names []string) error {
	switch {
	case p.AllNamespaces && len(names) > 0:
		return errors.New("a pod cannot be retrieved by name across all namespaces")
	case p.Selector != "" && len(names) > 0:
		return errors.New("pods are selected by name or by --selector, not by both")
	case len(p.Files) > 0 && (p.Selector != "" || p.AllNamespaces || len(names) > 0):
		return errors.New("pods are selected by the manifests of --filename, or by name, selector or namespace")
	}
	if err := checkSelector(p.Selector); err != nil {
		return err
	}
	return nil
}
