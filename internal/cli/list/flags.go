package list

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
)

// Flags are the flags of all lists, as those of kubectl get.
type Flags struct {
	flags.Pods
	Output     string
	NoHeaders  bool
	Watch      bool
	showLabels bool
	order      string
}

// AddTo adds the flags to f.
func (l *Flags) AddTo(f *pflag.FlagSet) {
	l.Add(f)
	l.AddFiles(f)
	f.StringVarP(&l.Output, "output", "o", "", "output format: "+printers.Formats+";\n"+
		"or manifest: what can be put back into the directory of manifests")
	f.BoolVar(&l.NoHeaders, "no-headers", false, "do not print headers")
	f.BoolVar(&l.showLabels, "show-labels", false, "show the labels in a column")
	f.StringVar(&l.order, "sort-by", "", "sort by a field, such as .metadata.creationTimestamp")
	f.BoolVarP(&l.Watch, "watch", "w", false, "after listing, watch for changes")
}

// manifestFormat is the format of -o that prints pods as manifests.
const manifestFormat = "manifest"

// errManifest is the error of -o manifest where workloads are listed.
var errManifest = errors.New("-o manifest is of pods only: of a workload, -o yaml | podrun convert - makes one")

// PodOptions checks the flags and returns the options of a list of pods.
func (l *Flags) PodOptions(dirs layout.Dirs) (Options, error) {
	if l.Output != manifestFormat {
		return l.Options()
	}
	as := *l
	as.Output = ""
	o, err := as.Options()
	if err == nil && l.Watch {
		err = errors.New("-o manifest: of use without --watch only")
	}
	o.Manifests, o.NoSuffix = true, flags.NoSuffix(dirs)
	return o, err
}

// WorkloadOptions checks the flags and returns the options of a list of workloads. args are the arguments.
func (l *Flags) WorkloadOptions(args []string) (Options, error) {
	names := args[1:]
	if strings.Contains(args[0], "/") {
		names = args
	}
	if err := l.Check(names); err != nil {
		return Options{}, err
	}
	if len(l.Files) > 0 {
		return Options{}, errors.New("the manifests of --filename say what is listed: give no type beside them")
	}
	if l.Output == manifestFormat {
		return Options{}, errManifest
	}
	return l.Options()
}

// WholeOptions checks the flags and returns the options of a list of volumes or plugins, of which none are
// named.
func (l *Flags) WholeOptions(kind string, names []string) (Options, error) {
	what := "volumes"
	if query.IsPlugins(kind) {
		what = "plugins"
	}
	switch {
	case l.Watch || len(names) > 0:
		return Options{}, errors.New(what + " are listed all at once")
	case l.Selector != "" || l.showLabels || len(l.Files) > 0:
		return Options{}, errors.New(what + " have no labels and are in no manifest: " +
			"--selector, --show-labels and --filename are of pods and workloads only")
	}
	return l.Options()
}

// Options checks the flags and returns the options of a list.
func (l *Flags) Options() (Options, error) {
	format, err := printers.ParseFormat(l.Output)
	if err != nil {
		return Options{}, err
	}
	order, err := printers.ParseOrder(l.order)
	if err == nil && order != nil && l.Watch {
		err = errors.New("only one of --sort-by and --watch may be used: changes are printed as they happen")
	}
	return Options{
		Selection: query.Selection{Namespace: l.Namespace, AllNamespaces: l.AllNamespaces, Labels: l.Selector},
		Format:    format, NoHeaders: l.NoHeaders, Watch: l.Watch, ShowLabels: l.showLabels, Order: order,
	}, err
}
