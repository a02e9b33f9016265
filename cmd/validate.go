package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/source/file"
	"podrun.io/podrun/internal/manifest/validate"
)

func (a *app) validateCommand() *cobra.Command {
	var output, node, podSecurity string
	var noSuffix bool
	c := &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check manifests as serve would",
		Long: "validate reads manifests as serve does and prints every error with its file, line and field. It\n" +
			"warns about manifests that users other than root and the owner can write.\n\n" +
			"Exit code: 0 all manifests can be used; 1 some cannot; 2 some cannot be read.",
		Example: "  podrun validate /etc/pods\n  podrun validate web.yaml job.yaml -o json\n" +
			"  podrun validate - < web.yaml",
		Args: argCount(1, many),
		RunE: func(c *cobra.Command, paths []string) error {
			if output != "text" && output != "json" {
				return usage(c, fmt.Errorf("-o %q: must be text or json", output))
			}
			node, err := nodeName(node)
			if err != nil {
				return usage(c, err)
			}
			policy, err := validate.NewPolicy(podSecurity)
			if err != nil {
				return usage(c, fmt.Errorf("--pod-security %w", err))
			}
			return a.validate(c.Context(), paths, file.Options{
				NodeName: node,
				NoSuffix: noSuffix,
				Policy:   policy,
			}, output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	c.Flags().StringVar(&node, "node-name", "", "node name (default: the hostname, in lower case)")
	addNoNodeSuffix(c.Flags(), &noSuffix)
	addPodSecurity(c.Flags(), &podSecurity)
	return c
}

// findings is the JSON output of validate.
type findings struct {
	Valid  bool                  `json:"valid"`
	Pods   []validPod            `json:"pods"`
	Errors []manifest.FieldError `json:"errors"`
	// Warnings do not make a manifest invalid.
	Warnings []string `json:"warnings,omitempty"`
}

type validPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	File      string `json:"file"`
}

func (a *app) validate(ctx context.Context, paths []string, o file.Options, output string) error {
	word := manifest.Word{}
	shown := map[string]string{manifest.Stdin: "stdin"}
	var unreadable []error
	for _, path := range paths {
		s := a.snapshot(ctx, path, o)
		if s.Err != nil {
			unreadable = append(unreadable, s.Err)
			continue
		}
		if _, twice := word.Last[s.Source]; !twice {
			word.Order = append(word.Order, s.Source)
		}
		word.Record(s)
		shown[s.Source] = path
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	found := findings{Pods: []validPod{}, Errors: []manifest.FieldError{}}
	desired := manifest.Merge(word)
	for key, p := range desired.Pods {
		found.Pods = append(found.Pods, validPod{key.Namespace, key.Name, manifest.OriginOf(p).Path})
	}
	slices.SortFunc(found.Pods, func(a, b validPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, problem := range desired.Problems {
		errs, ok := fieldErrors(problem)
		if !ok {
			unreadable = append(unreadable, problem.Err)
		}
		found.Errors = append(found.Errors, errs...)
	}
	for _, warning := range desired.Warnings {
		found.Warnings = append(found.Warnings, warning.Err.Error())
	}
	a.warn(desired.Warnings)
	found.name(shown)
	found.Valid = len(found.Errors)+len(unreadable) == 0
	return a.report(found, unreadable, output)
}

// snapshot reads one path as a manifest source does.
func (a *app) snapshot(ctx context.Context, path string, o file.Options) manifest.Snapshot {
	if path != manifest.Stdin {
		o.Path = path
		return file.Read(ctx, o)
	}
	load := manifest.LoadOptions{NodeName: o.NodeName, NoSuffix: o.NoSuffix, Policy: o.Policy}
	return file.NewStdin(a.In, load).Read(ctx)
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

// warn prints the warnings about manifests that are used nevertheless.
func (a *app) warn(warnings []manifest.Problem) {
	for _, w := range warnings {
		fmt.Fprintln(a.ErrOut, "warning:", w.Err)
	}
}

// name replaces the paths that were read by the paths that the user gave.
func (f *findings) name(shown map[string]string) {
	rename := func(file string) string {
		if path, ok := shown[file]; ok {
			return path
		}
		if path, ok := shown[filepath.Dir(file)]; ok {
			return filepath.Join(path, filepath.Base(file))
		}
		return file
	}
	for i := range f.Pods {
		f.Pods[i].File = rename(f.Pods[i].File)
	}
	for i := range f.Errors {
		f.Errors[i].File = rename(f.Errors[i].File)
	}
}

// report prints the findings on standard output and a summary on standard error. It returns an
// error with the exit code if there are any errors.
func (a *app) report(f findings, unreadable []error, output string) error {
	if output == "json" {
		b, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cli.ForTerminal(a.Out), string(b)); err != nil {
			return err
		}
	} else {
		for _, e := range f.Errors {
			if _, err := fmt.Fprintln(a.Out, summary.Plain(e.Error())); err != nil {
				return err
			}
		}
	}
	files := map[string]bool{}
	for _, e := range f.Errors {
		files[e.File] = true
	}
	switch {
	case len(unreadable) > 0:
		return &cli.Error{Code: cli.ExitUsage, Err: errors.Join(unreadable...)}
	case len(f.Errors) > 0:
		fmt.Fprintf(a.ErrOut, "%s in %s; %s valid\n",
			count(len(f.Errors), "error"), count(len(files), "file"), count(len(f.Pods), "pod"))
		return &cli.Error{Code: cli.ExitFailed}
	}
	fmt.Fprintf(a.ErrOut, "%s valid\n", count(len(f.Pods), "pod"))
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
