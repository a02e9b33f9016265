// Package top measures how much CPU and memory running containers use, and prints a table of it,
// for podrun top. It reads the cgroups itself, so it also works while no serve runs; what serve
// reports over HTTP is package stats.
//
// It does not find out which containers run: their statuses say so. Begin reading at Measure.
package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/sys"
)

// Usage is a running container and its resource usage.
type Usage struct {
	pod           *v1.Pod
	name          string
	cgroups       []string // paths where its cgroup may be, one for each driver
	before, after cgroup.Usage
	millicores    int64
}

// Running returns the running containers of pods, not yet measured.
func Running(pods []*v1.Pod) []Usage {
	var all []Usage
	for _, p := range pods {
		for _, r := range summary.Roles(p) {
			if r.Status == nil || r.Status.State.Running == nil {
				continue
			}
			all = append(all, Usage{pod: p, name: r.Container.Name, cgroups: oci.CgroupsOfContainer(p, r.InstanceID())})
		}
	}
	return all
}

// Measure reads the usage twice, interval apart. It leaves out containers that end in the meantime.
func Measure(ctx context.Context, all []Usage, interval time.Duration) ([]Usage, error) {
	tree, err := cgroup.Open()
	if err != nil {
		return nil, err
	}
	read := func(into func(*Usage) *cgroup.Usage) error {
		var err error
		var left []Usage
		for _, t := range all {
			_, usage, one := cgroup.First(tree.Usage, t.cgroups)
			switch {
			case errors.Is(one, fs.ErrNotExist):
				continue
			case one != nil:
				err = one
			}
			*into(&t) = usage
			left = append(left, t)
		}
		all = left
		return err
	}
	start := time.Now()
	if err := read(func(t *Usage) *cgroup.Usage { return &t.before }); err != nil {
		return nil, err
	}
	if err := sys.Sleep(ctx, interval); err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	if err := read(func(t *Usage) *cgroup.Usage { return &t.after }); err != nil {
		return nil, err
	}
	for i := range all {
		t := &all[i]
		t.millicores = int64(math.Ceil(float64(t.after.CPU-t.before.CPU) / float64(elapsed) * 1000))
	}
	return all, nil
}

// Sort sorts containers by cpu or memory, highest usage first. Another order leaves them as they are.
func Sort(all []Usage, by string) {
	slices.SortStableFunc(all, func(x, y Usage) int {
		switch by {
		case "cpu":
			return cmp.Compare(y.millicores, x.millicores)
		case "memory":
			return cmp.Compare(y.after.WorkingSet, x.after.WorkingSet)
		}
		return 0
	})
}

// Options say what is measured and shown.
type Options struct {
	// SortBy is cpu, memory or "", which keeps the order of the pods.
	SortBy   string
	Interval time.Duration
	// Watch prints the table again after each Interval, until the command is interrupted.
	Watch bool
	// Socket is where serve listens, which may have what was used before.
	Socket string
	// AllNamespaces and NoHeaders select the columns and the first line of the table.
	AllNamespaces, NoHeaders bool
}

// Add adds the flags of the command.
func (o *Options) Add(f *pflag.FlagSet) {
	f.StringVar(&o.SortBy, "sort-by", "", "sort by cpu or memory, highest usage first")
	f.DurationVar(&o.Interval, "interval", time.Second, "time over which the CPU usage is measured")
	f.BoolVarP(&o.Watch, "watch", "w", false, "measure again and again, with lines of what was used")
	f.BoolVar(&o.NoHeaders, "no-headers", false, "do not print headers")
}

// Check returns an error if the flags make no sense for the machine or, if node is not set, for pods.
func (o *Options) Check(node bool) error {
	switch {
	case !slices.Contains([]string{"", "cpu", "memory"}, o.SortBy):
		return fmt.Errorf("--sort-by %q: must be cpu or memory", o.SortBy)
	case o.Interval <= 0:
		return fmt.Errorf("--interval %s: must be positive", o.Interval)
	case o.Watch && node:
		return errors.New("--watch: of containers only, not of the node")
	}
	return nil
}

// Show measures the running containers of pods and prints a table of them.
func Show(ctx context.Context, to cli.Streams, read func() ([]*v1.Pod, error), o Options) error {
	if o.Watch {
		return watch(ctx, to, read, o)
	}
	pods, err := read()
	if err != nil {
		return err
	}
	all := Running(pods)
	if len(all) == 0 {
		fmt.Fprintln(to.ErrOut, "No running containers found")
		return nil
	}
	all, err = Measure(ctx, all, o.Interval)
	if err != nil {
		return err
	}
	Sort(all, o.SortBy)
	return Print(to.Out, all, nil, fit{}, o)
}

// Print prints a table of containers, with lines of what they have used if that is kept and l has columns for them.
func Print(out io.Writer, all []Usage, kept *past, l fit, f Options) error {
	var rows [][]string
	add := func(namespace, pod, name string, used ...string) {
		row := append([]string{l.short(pod), name}, used...)
		if f.AllNamespaces {
			row = append([]string{namespace}, row...)
		}
		rows = append(rows, row)
	}
	if !f.NoHeaders {
		used := []string{"CPU(cores)", "MEMORY(bytes)"}
		if kept != nil && l.columns > 0 {
			used = []string{"CPU(cores)", "RECENT", "MEMORY(bytes)", "RECENT"}
		}
		add("NAMESPACE", "POD", "NAME", used...)
	}
	for _, t := range all {
		used := []string{cores(t.millicores), memory(t.after.WorkingSet)}
		if kept != nil && l.columns > 0 {
			cpu, bytes := kept.of[t.key()].lines(t, l.columns)
			used = []string{used[0], cpu, used[1], bytes}
		}
		add(t.pod.Namespace, t.pod.Name, t.name, used...)
	}
	return printers.Rows(out, rows...)
}

// cores returns thousandths of a processor as kubectl top does, memory a number of bytes.
func cores(milli int64) string { return strconv.FormatInt(milli, 10) + "m" }

func memory(bytes int64) string { return strconv.FormatInt(bytes>>20, 10) + "Mi" }
