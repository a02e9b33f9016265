// Package lint checks manifests as podrun validate does: it reads them as serve would and reports
// every error with its file, line and field.
//
// Begin reading at Check.
package lint

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/source/file"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/workload"
)

// Findings is the result of Check, and the JSON output of podrun validate.
type Findings struct {
	Valid  bool                  `json:"valid"`
	Pods   []validPod            `json:"pods"`
	Errors []manifest.FieldError `json:"errors"`
	// Warnings do not make a manifest invalid.
	Warnings []string `json:"warnings,omitempty"`
	// jobs are the names of the Jobs, and ofJobs those of their first pods.
	jobs, ofJobs []pod.Key
	cronJobs     []pod.Key
	// workloads are the others, with their pods.
	workloads []query.Made
	// unreadable are the errors of manifests that cannot be read.
	unreadable []error
}

type validPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	File      string `json:"file"`
}

// Options are the options of Check.
type Options struct {
	Stdin    io.Reader
	NodeName string
	NoSuffix bool
	Policy   *podsecurity.Policy // refuses pods that ask for more; nil: none
	Rules    support.Rules
	// StrictPermissions refuses files that other users could change. Served says whether serve reads a path, and
	// refuses them there. It may be nil.
	StrictPermissions bool
	Served            func(path string) (reads, strict bool)
}

// once returns paths without further ones of the standard input, which can be read once.
func once(paths []string) []string {
	var all []string
	for _, path := range paths {
		if path != manifest.Stdin || !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all
}

// Check reads manifests as serve does and reports what is in them and what cannot be used. It fails
// only if ctx ends.
func Check(ctx context.Context, paths []string, o Options) (*Findings, error) {
	sources := manifest.Sources{}
	displayed := map[string]string{manifest.Stdin: "stdin"}
	f := &Findings{Pods: []validPod{}, Errors: []manifest.FieldError{}}
	lines := &texts{stdin: &bytes.Buffer{}, read: map[string][]*decode.Document{}}
	if o.Stdin != nil {
		o.Stdin = io.TeeReader(o.Stdin, lines.stdin)
	}
	for _, path := range once(paths) {
		s := o.snapshot(ctx, path)
		if s.Err != nil {
			f.unreadable = append(f.unreadable, s.Err)
			continue
		}
		if _, twice := sources.Last[s.Source]; !twice {
			sources.Order = append(sources.Order, s.Source)
		}
		sources.Record(s)
		displayed[s.Source] = path
		if names := file.PassedOver(s.Source); len(names) > 0 {
			f.Warnings = append(f.Warnings, fmt.Sprintf("%s: passed over, the name of a manifest ends with .yaml, .yml or .json: %s",
				path, strings.Join(names, ", ")))
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	desired := manifest.Merge(sources)
	for _, w := range desired.Workloads {
		switch w.Kind {
		case workload.Job:
			f.jobs = append(f.jobs, w.Key)
		case workload.CronJob:
			f.cronJobs = append(f.cronJobs, w.Key)
		default:
			f.workloads = append(f.workloads, query.Made{ID: w.ID})
		}
	}
	for key, p := range desired.Pods {
		id, _ := workload.Of(p)
		if id.Kind == workload.Job {
			f.ofJobs = append(f.ofJobs, key)
		}
		for i := range f.workloads {
			if w := &f.workloads[i]; w.ID == id {
				w.Pods = append(w.Pods, key)
			}
		}
		f.Pods = append(f.Pods, validPod{key.Namespace, key.Name, manifest.OriginOf(p).Path})
	}
	slices.SortFunc(f.Pods, func(a, b validPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, problem := range desired.Problems {
		errs, ok := fieldErrors(problem)
		if !ok {
			f.unreadable = append(f.unreadable, problem.Err)
		}
		f.Errors = append(f.Errors, errs...)
	}
	for _, warning := range desired.Warnings {
		err := warning.Err
		if about := (manifest.FieldError{}); errors.As(err, &about) {
			about.File = renamed(displayed, about.File)
			err = about
		}
		f.Warnings = append(f.Warnings, err.Error())
	}
	for _, err := range documentsOf(desired, sources, paths).volumes(lines) {
		if err.File = renamed(displayed, err.File); err.File == manifest.Stdin {
			err.File = "stdin"
		}
		f.Warnings = append(f.Warnings, err.Error())
	}
	f.rename(displayed)
	f.Valid = len(f.Errors)+len(f.unreadable) == 0
	return f, nil
}

// snapshot reads one path as a manifest source does.
func (o Options) snapshot(ctx context.Context, path string) manifest.Snapshot {
	if path != manifest.Stdin {
		reads, strict := false, false
		if o.Served != nil {
			reads, strict = o.Served(path)
		}
		return file.Read(ctx, file.Options{
			Path: path, NodeName: o.NodeName, NoSuffix: o.NoSuffix, Policy: o.Policy, Rules: o.Rules,
			Lasting: reads, StrictPermissions: o.StrictPermissions || strict,
		})
	}
	load := manifest.LoadOptions{NodeName: o.NodeName, NoSuffix: o.NoSuffix, Policy: o.Policy, Rules: o.Rules}
	return file.NewStdin(o.Stdin, load).Read(ctx)
}

// fieldErrors returns the field errors of a problem in the content of a manifest. It returns false
// if the manifest could not be read.
func fieldErrors(p manifest.Problem) ([]manifest.FieldError, bool) {
	var invalid *manifest.InvalidError
	var field manifest.FieldError
	var twice *manifest.DuplicateError
	switch {
	case errors.As(p.Err, &invalid):
		return invalid.Errors, true
	case errors.As(p.Err, &field):
		return []manifest.FieldError{field}, true
	case errors.As(p.Err, &twice):
		return []manifest.FieldError{{File: twice.Not.Path, Key: twice.Key,
			Message: twice.Message()}}, true
	}
	return nil, false
}

// renamed returns the path that the user gave of a file that was read.
func renamed(displayed map[string]string, file string) string {
	if path, ok := displayed[file]; ok {
		return path
	}
	if path, ok := displayed[filepath.Dir(file)]; ok {
		return filepath.Join(path, filepath.Base(file))
	}
	return file
}

// rename replaces the paths that were read by the paths that the user gave.
func (f *Findings) rename(displayed map[string]string) {
	for i := range f.Pods {
		f.Pods[i].File = renamed(displayed, f.Pods[i].File)
	}
	for i := range f.Errors {
		f.Errors[i].File = renamed(displayed, f.Errors[i].File)
	}
}

// Print prints the findings on standard output and a summary on standard error. It returns an
// error with the exit code if there are any errors.
func (f *Findings) Print(streams cli.Streams, inJSON bool) error {
	for _, warning := range f.Warnings {
		cli.Warnf(streams.ErrOut, "%s", warning)
	}
	if inJSON {
		b, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cli.ForTerminal(streams.Out), string(b)); err != nil {
			return err
		}
	} else {
		for _, e := range f.Errors {
			if _, err := fmt.Fprintln(streams.Out, summary.Plain(e.Error())); err != nil {
				return err
			}
		}
	}
	files := map[string]bool{}
	for _, e := range f.Errors {
		files[e.File] = true
	}
	switch {
	case len(f.unreadable) > 0:
		return &cli.Error{Code: cli.ExitUsage, Err: errors.Join(f.unreadable...)}
	case len(f.Errors) > 0:
		fmt.Fprintf(streams.ErrOut, "%s in %s; %s valid\n",
			printers.Count(len(f.Errors), "error"),
			printers.Count(len(files), "file"),
			f.valid())
		return &cli.Error{Code: cli.ExitFailed}
	}
	fmt.Fprintf(streams.ErrOut, "%s valid\n", f.valid())
	return nil
}

// valid counts what can be used. The pods of CronJobs are not there yet.
func (f *Findings) valid() string {
	var all []string
	if len(f.Pods) > 0 || len(f.cronJobs) == 0 {
		all = append(all, printers.Count(len(f.Pods), "pod"))
	}
	if n := len(f.cronJobs); n > 0 {
		all = append(all, printers.Count(n, "CronJob"))
	}
	return strings.Join(all, " and ")
}
