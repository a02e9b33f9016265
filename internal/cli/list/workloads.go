package list

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	units "k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

// Workloads lists the objects that the arguments name: `deployments NAME...`, `deployment/NAME...`, or
// `deployments,pods NAME...`.
func (l *Lister) Workloads(ctx context.Context, o Options, args []string) error {
	types, names, err := query.TypesAndNames(args)
	if err != nil {
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return l.sections(ctx, o, types, names, len(names))
}

// ofManifests lists the selected workloads of manifests, and the pods that none of them has made.
func (l *Lister) ofManifests(ctx context.Context, o Options) error {
	if o.Manifests {
		return &cli.Error{Code: cli.ExitUsage, Err: errManifest}
	}
	s := o.Selection
	var types []workload.Kind
	named := 0
	for _, kind := range query.Kinds() {
		if of := len(s.Of(kind)); of > 0 {
			types, named = append(types, kind), named+of
		}
	}
	if bare := s.Bare(); len(bare) > 0 {
		types, named = append(types, ""), named+len(bare)
	}
	return l.sections(ctx, o, types, nil, named)
}

// sections lists the objects of types, all of them or those with names. named is how many are named there or in
// manifests.
func (l *Lister) sections(ctx context.Context, o Options, types []workload.Kind, names []string, named int) error {
	if o.Watch && len(types) > 1 {
		return &cli.Error{Code: cli.ExitUsage, Err: errors.New("--watch is of one type: name only one")}
	}
	if o.Format.Tabular() {
		l.warnOfServe(ctx, nil)
		l.WarnOfManifests()
	}
	if o.Watch {
		return l.watchSection(ctx, o, types[0], names)
	}
	var all []section
	var missing []error
	for _, kind := range types {
		of, absent, err := l.section(o, kind, names)
		if err != nil {
			return err
		}
		all, missing = append(all, of), append(missing, absent...)
	}
	return errors.Join(append([]error{l.print(o, all, named)}, missing...)...)
}

// watchSection prints the objects of a kind, and each again whenever it has changed, until ctx ends.
func (l *Lister) watchSection(ctx context.Context, o Options, kind workload.Kind, names []string) error {
	var changes *printers.ItemChanges
	return l.Reader.OnChange(ctx, l.Reader.Dirs.StatusFiles().Dir(), func() (bool, error) {
		of, missing, err := l.section(o, kind, names)
		if changes == nil {
			if err := errors.Join(append(missing, err)...); err != nil {
				return false, err
			}
			changes = printers.NewItemChanges(l.Streams.Out, printers.Items{
				Format: o.Format, NoHeaders: o.NoHeaders, AllNamespaces: o.Selection.AllNamespaces, Header: of.header,
			})
		}
		if err != nil {
			l.Log.Debug("reading workloads failed", "err", err)
			return false, nil // a failed read does not mean that they are removed
		}
		return false, changes.Print(of.items)
	})
}

// section are the objects of one kind.
type section struct {
	kind   workload.Kind // "": pods
	header []string
	items  []printers.Item
}

// section returns the selected objects of a kind, and an error for each that does not exist.
func (l *Lister) section(o Options, kind workload.Kind, names []string) (of section, missing []error, err error) {
	if kind == "" {
		if s := &o.Selection; s.HasWorkloads() {
			s.Manifests, s.Jobs, s.CronJobs, s.Workloads = s.Bare(), nil, nil, nil
		}
		pods, err := l.Reader.Select(o.Selection, names)
		if len(names)+len(o.Selection.Manifests) > 0 && err != nil { // as kubectl, print those that exist
			missing, err = append(missing, err), nil
		}
		if err == nil {
			err = printers.Sort(o.Order, pods)
		}
		header, items := printers.PodItems(pods, o.Format, o.ShowLabels)
		return section{header: header, items: items}, missing, err
	}
	all, missing, err := l.Reader.Objects(kind, o.Selection, names)
	if err != nil {
		return section{}, nil, err
	}
	of = section{kind: kind, header: append(append([]string{"NAME"}, workload.Header(kind)...), "AGE")}
	if o.Format.Wide() {
		of.header = append(of.header, "CONTAINERS", "IMAGES", "MANIFEST")
	}
	if o.ShowLabels {
		of.header = append(of.header, "LABELS")
	}
	objects := make([]runtime.Object, len(all))
	for i, w := range all {
		objects[i] = w.Object
	}
	if err := printers.Sort(o.Order, objects); err != nil {
		return section{}, nil, err
	}
	for _, object := range objects {
		w := all[slices.IndexFunc(all, func(w query.Object) bool { return w.Object == object })]
		row := append(append([]string{w.Key.Name}, cells(w)...), printers.Age(w.Since, time.Now()))
		if o.Format.Wide() {
			row = append(row, wide(w)...)
		}
		if o.ShowLabels {
			row = append(row, printers.OrNone(w.Labels().String()))
		}
		of.items = append(of.items, printers.Item{
			Name: w.Key.Name, Namespace: w.Key.Namespace, Object: w.Object, Row: row, Resource: query.Resource(kind),
		})
	}
	return of, missing, nil
}

// print prints sections: as tables one after the other, else as one list, or as the object if one is named. named is
// how many are; 0: all are listed.
func (l *Lister) print(o Options, all []section, named int) error {
	printer := printers.Items{
		Format: o.Format, NoHeaders: o.NoHeaders, AllNamespaces: o.Selection.AllNamespaces,
	}
	var items []printers.Item
	for _, of := range all {
		items = append(items, of.items...)
	}
	switch {
	case len(items) == 0 && o.Format.Tabular():
		if named == 0 {
			l.SayNone(o.Selection)
		}
		return nil
	case !o.Format.Tabular():
		printer.Single = named == 1 && len(items) == 1
		return printer.Print(l.Streams.Out, items)
	}
	all = slices.DeleteFunc(all, func(of section) bool { return len(of.items) == 0 })
	for i, of := range all {
		if i > 0 {
			if _, err := fmt.Fprintln(l.Streams.Out); err != nil {
				return err
			}
		}
		printer.Header = of.header
		printer.Prefix = len(all) > 1
		if err := printer.Print(l.Streams.Out, of.items); err != nil {
			return err
		}
	}
	return nil
}

// wide returns the cells of a workload that only -o wide has. podrun has no use for kubectl's SELECTOR.
func wide(w query.Object) []string {
	names, images := workload.Names(workload.Containers(w.Object, w.Pods))
	path := w.Manifest
	if path == "" && len(w.Pods) > 0 {
		path = manifest.OriginOf(w.Pods[0]).Path
	}
	row := []string{strings.Join(names, ","), strings.Join(images, ","), path}
	for i := range row {
		row[i] = printers.OrNone(row[i])
	}
	return row
}

// cells returns the cells of a workload between its name and its age.
func cells(w query.Object) []string {
	if cron, is := w.Object.(*batchv1.CronJob); is {
		return cronjobs.Row(cron, time.Now())
	}
	job, is := w.Object.(*batchv1.Job)
	if !is {
		return w.Summary.Row(w.Kind)
	}
	duration := ""
	if d, began := jobs.Duration(&job.Status, time.Now()); began {
		duration = units.HumanDuration(d)
	}
	state, completions := jobs.State(&job.Status), jobs.Completions(job)
	if w.PodsOnly {
		state, completions = jobs.CellsOfPods(&job.Status)
	}
	return []string{state, completions, duration}
}
