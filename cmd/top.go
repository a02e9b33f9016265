package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/oci"
)

type topFlags struct {
	getFlags
	sortBy   string
	interval time.Duration
}

func (a *app) topCommand() *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top [POD...]",
		Short: "Show the CPU and memory usage of containers",
		Long: "top shows the CPU usage of containers in millicores, measured over a second by default, and their memory\n" +
			"working set, which does not count cached file data that has not been used recently. It reads the\n" +
			"kernel's cgroups, so it also works while serve is down.",
		Example:           "  podrun top\n  podrun top web\n  podrun top -A --sort-by memory",
		ValidArgsFunction: a.completeManyPods,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !slices.Contains([]string{"", "cpu", "memory"}, f.sortBy):
				return usage(c, fmt.Errorf("--sort-by %q: must be cpu or memory", f.sortBy))
			case f.interval <= 0:
				return usage(c, fmt.Errorf("--interval %s: must be positive", f.interval))
			case f.allNamespaces && len(args) > 0:
				return usage(c, errors.New("a pod cannot be retrieved by name across all namespaces"))
			case f.selector != "":
				if _, err := labels.Parse(f.selector); err != nil {
					return usage(c, fmt.Errorf("--selector %q: %w", f.selector, err))
				}
			}
			return a.top(c.Context(), f, args)
		},
	}
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces")
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "label selector of the pods")
	c.Flags().StringVar(&f.sortBy, "sort-by", "", "sort by cpu or memory, highest usage first")
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "time over which the CPU usage is measured")
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "do not print headers")
	a.completeFlags(c)
	return c
}

// taker is a running container and its resource usage.
type taker struct {
	pod           *v1.Pod
	name          string
	cgroups       []string // paths where its cgroup may be, one for each driver
	before, after cgroup.Usage
	millicores    int64
}

func (a *app) top(ctx context.Context, f topFlags, names []string) error {
	pods, err := a.pods().Select(f.selection(), names)
	if err != nil {
		return err
	}
	all := takers(pods)
	if len(all) == 0 {
		fmt.Fprintln(a.ErrOut, "No running containers found")
		return nil
	}
	tree, err := cgroup.Open()
	if err != nil {
		return err
	}
	if all, err = measure(ctx, tree, all, f.interval); err != nil {
		return err
	}
	slices.SortStableFunc(all, func(x, y taker) int {
		switch f.sortBy {
		case "cpu":
			return cmp.Compare(y.millicores, x.millicores)
		case "memory":
			return cmp.Compare(y.after.WorkingSet, x.after.WorkingSet)
		}
		return 0
	})
	return a.printTop(f, all)
}

func takers(pods []*v1.Pod) []taker {
	var all []taker
	for _, p := range pods {
		for _, r := range summary.Roles(p) {
			if r.Status == nil || r.Status.State.Running == nil {
				continue
			}
			all = append(all, taker{pod: p, name: r.Container.Name, cgroups: oci.CgroupsOfContainer(p, r.InstanceID())})
		}
	}
	return all
}

// measure reads the usage twice, interval apart. It leaves out containers that end in the meantime.
func measure(ctx context.Context, tree *cgroup.Tree, all []taker, interval time.Duration) ([]taker, error) {
	look := func(into func(*taker) *cgroup.Usage) error {
		var err error
		var left []taker
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
	began := time.Now()
	if err := look(func(t *taker) *cgroup.Usage { return &t.before }); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(interval):
	}
	took := time.Since(began)
	if err := look(func(t *taker) *cgroup.Usage { return &t.after }); err != nil {
		return nil, err
	}
	for i := range all {
		t := &all[i]
		t.millicores = int64(math.Ceil(float64(t.after.CPU-t.before.CPU) / float64(took) * 1000))
	}
	return all, nil
}

func (a *app) printTop(f topFlags, all []taker) error {
	var rows [][]string
	if !f.noHeaders {
		rows = append(rows, []string{"POD", "NAME", "CPU(cores)", "MEMORY(bytes)"})
	}
	for _, t := range all {
		rows = append(rows, []string{
			t.pod.Name,
			t.name,
			strconv.FormatInt(t.millicores, 10) + "m",
			strconv.FormatInt(t.after.WorkingSet>>20, 10) + "Mi",
		})
	}
	if f.allNamespaces {
		for i := range rows {
			namespace := "NAMESPACE"
			if at := i - (len(rows) - len(all)); at >= 0 {
				namespace = all[at].pod.Namespace
			}
			rows[i] = append([]string{namespace}, rows[i]...)
		}
	}
	return printers.Rows(a.Out, rows...)
}
