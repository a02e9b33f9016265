// Package list lists pods, events and volumes for podrun get, ps and events, once or whenever they
// change. It warns if what it prints may be outdated or incomplete.
//
// It does not select what is listed (package query does) and knows no output format (package
// printers does). Begin reading at Lister.
package list

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/problems"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/names"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/minimal"
	"podrun.io/podrun/internal/pod"
)

// Lister lists what Reader reads.
type Lister struct {
	Streams cli.Streams
	Reader  *query.Reader
	Log     *slog.Logger
	// Pending says what serve would do if it was started; "" if that is not known. May be nil.
	Pending func(ctx context.Context) string
}

// Options are the options of all lists.
type Options struct {
	Selection query.Selection
	Format    printers.Format
	NoHeaders bool
	// ShowLabels adds the labels of the objects to their table.
	ShowLabels bool
	// Order is the order of the list; nil is by namespace and name, and of events by time.
	Order *printers.Order
	// Manifests prints pods as manifests. NoSuffix says that their names are those of their manifests.
	Manifests, NoSuffix bool
	// Watch prints what changes after the list, until the context ends.
	Watch bool
}

// Pods lists the selected pods, or those of them with the given names, and workloads of manifests in place of
// their pods. It prints the pods that exist even if one of the names is not found.
func (l *Lister) Pods(ctx context.Context, o Options, names []string) error {
	if s := o.Selection; len(s.Jobs)+len(s.CronJobs) > 0 || len(s.Workloads) > 0 && !o.Manifests {
		return l.ofManifests(ctx, o)
	}
	printer := printers.NewPods(l.Streams.Out, printers.PodOptions{
		Format: o.Format, Single: len(names)+len(o.Selection.Manifests) == 1, NoHeaders: o.NoHeaders,
		AllNamespaces: o.Selection.AllNamespaces, ShowLabels: o.ShowLabels,
	})
	pods, missing := l.Reader.Select(o.Selection, names)
	if printer.Tabular() && !o.Manifests {
		l.warnOfServe(ctx, pods)
		l.WarnOfManifests() // also if a pod does not exist: a manifest error may be the reason
	}
	switch {
	case missing != nil && (o.Watch || len(pods) == 0):
		return missing
	case o.Watch:
		return l.watchPods(ctx, o, names, printer)
	case len(pods) == 0 && printer.Tabular():
		l.SayNone(o.Selection)
		return nil
	}
	if err := printers.Sort(o.Order, pods); err != nil {
		return err
	}
	if o.Manifests {
		return errors.Join(l.manifests(pods, o.NoSuffix), missing)
	}
	return errors.Join(printer.List(pods), missing) // as kubectl, print the pods that exist
}

// manifests prints pods as the documents of a manifest.
func (l *Lister) manifests(pods []*v1.Pod, noSuffix bool) error {
	out := cli.ForTerminal(l.Streams.Out)
	for i, p := range pods {
		text, err := minimal.Manifest(p, noSuffix)
		if err == nil && i > 0 {
			_, err = fmt.Fprintln(out, "---")
		}
		if err == nil {
			_, err = out.Write(text)
		}
		if err != nil {
			return err
		}
		if refs := manifest.Refs(p); len(refs) > 0 {
			cli.Warnf(l.Streams.ErrOut, "the ConfigMaps and Secrets that pod %s uses are not printed: see %s", p.Name,
				printers.OrNone(manifest.OriginOf(p).Path))
		}
	}
	return nil
}

// SayNone says that there are none of the selected pods.
func (l *Lister) SayNone(s query.Selection) {
	where := " in " + s.Namespace + " namespace."
	if s.AllNamespaces {
		where = ""
	}
	fmt.Fprintln(l.Streams.ErrOut, "No resources found"+where)
}

// watchPods prints all pods, and each pod again whenever it has changed, until ctx ends.
func (l *Lister) watchPods(ctx context.Context, o Options, names []string, printer *printers.Pods) error {
	return l.Reader.OnChange(ctx, l.Reader.Dirs.StatusFiles().Dir(), func() (bool, error) {
		pods, err := l.Reader.Select(o.Selection, names)
		var notFound *query.NotFoundError
		switch {
		case err != nil && !printer.Printed():
			return false, err
		case err != nil && !errors.As(err, &notFound):
			l.Log.Debug("reading pods failed", "err", err)
			return false, nil // a failed read does not mean that the pods are removed
		}
		return false, printer.Changes(pods)
	})
}

// warnOfServe warns as WarnOfAge does, and says what serve would do if it was started.
func (l *Lister) warnOfServe(ctx context.Context, listed []*v1.Pod) {
	if !l.WarnOfAge(listed) || l.Pending == nil {
		return
	}
	if would := l.Pending(ctx); would != "" {
		cli.Warnf(l.Streams.ErrOut, "podrun serve would %s; podrun diff shows it in full", would)
	}
}

// WarnOfAge warns how old the statuses are if serve does not run, unless other processes own all of
// the listed pods, or that there are none because no podrun has run since boot. It reports whether it has warned.
func (l *Lister) WarnOfAge(listed []*v1.Pod) bool { return l.warnOfAge("pods", listed) }

// warnOfAge is WarnOfAge for what is listed: pods, or what serve alone knows.
func (l *Lister) warnOfAge(what string, listed []*v1.Pod) bool {
	seen, alive := l.Reader.Owners.LastSeen()
	isUnowned := func(p *v1.Pod) bool {
		owned, _ := l.Reader.Owners.Kept(pod.KeyOf(p))
		return !owned
	}
	switch {
	case alive || len(listed) > 0 && (seen.IsZero() || !slices.ContainsFunc(listed, isUnowned)):
		return false
	case seen.IsZero():
		if all, _ := l.Reader.Select(query.Selection{AllNamespaces: true}, nil); len(all) > 0 {
			return false // of a podrun whose heartbeat could not be written
		}
		cli.Warnf(l.Streams.ErrOut, "podrun serve is not running, and has not run since boot with the run directory %s",
			l.Reader.Dirs.Run)
		return true
	}
	cli.Warnf(l.Streams.ErrOut, "podrun serve is not running; this is how %s were %s ago, at %s",
		what, printers.Age(seen, time.Now()), seen.Local().Format(time.DateTime))
	return true
}

// maxWarnings is the maximum number of manifest problems that are printed.
const maxWarnings = 5

// WarnOfManifests warns about manifests that serve cannot use. A manifest that was never valid has
// no pod whose status could show the error.
func (l *Lister) WarnOfManifests() {
	problems, err := problems.Read(l.Reader.Dirs)
	if err != nil {
		cli.Warnf(l.Streams.ErrOut, "%v", err)
	}
	for i, p := range problems {
		if i == maxWarnings {
			cli.Warnf(l.Streams.ErrOut, "%s more", printers.Count(len(problems)-maxWarnings, "problem"))
			break
		}
		first, more, _ := strings.Cut(p.Error, "\n")
		if more != "" {
			first += " …"
		}
		cli.Warnf(l.Streams.ErrOut, "manifest cannot be used: %s", first)
	}
}

// Events lists the events of the pod with a name, or of all selected pods if it is "", that are of
// one of the types, or of any type if there are none.
func (l *Lister) Events(ctx context.Context, o Options, name string, types []string) error {
	printer := printers.NewEvents(l.Streams.Out, printers.EventOptions{
		Format: o.Format, NoHeaders: o.NoHeaders, AllNamespaces: o.Selection.AllNamespaces, Watch: o.Watch,
	})
	selection := query.EventSelection{
		Namespace: o.Selection.Namespace, AllNamespaces: o.Selection.AllNamespaces, Types: types, Pod: name,
	}
	all, err := query.Events(l.Reader.Dirs, selection)
	switch {
	case err != nil:
		return err
	case o.Watch:
		return l.watchEvents(ctx, selection, printer)
	case len(all) == 0 && o.Format.Tabular():
		where := " in " + o.Selection.Namespace + " namespace."
		if o.Selection.AllNamespaces {
			where = "."
		}
		fmt.Fprintln(l.Streams.ErrOut, "No events found"+where)
		named := pod.Key{Namespace: o.Selection.Namespace, Name: name}
		if hint := names.MeantHint(l.Reader.Dirs, "podrun events", named); hint != "" {
			fmt.Fprintln(l.Streams.ErrOut, "hint: "+hint)
		}
		return nil
	}
	if err := printers.Sort(o.Order, all); err != nil {
		return err
	}
	return printer.Print(all)
}

// watchEvents prints all events, and each event again whenever it has occurred again, until ctx
// ends.
func (l *Lister) watchEvents(ctx context.Context, selection query.EventSelection, printer *printers.Events) error {
	// The count begins anew when podrun has dropped the event and it occurs again.
	type occurrence struct {
		count int32
		last  time.Time
	}
	printed := map[string]occurrence{}
	return l.Reader.OnChange(ctx, filepath.Dir(l.Reader.Dirs.Events()), func() (bool, error) {
		all, err := query.Events(l.Reader.Dirs, selection)
		if err != nil {
			return false, err
		}
		var changed []v1.Event
		for _, e := range all {
			if now := (occurrence{e.Count, e.LastTimestamp.Time}); printed[e.Name] != now {
				printed[e.Name] = now
				changed = append(changed, e)
			}
		}
		if len(changed) == 0 {
			return false, nil
		}
		return false, printer.Print(changed)
	})
}
