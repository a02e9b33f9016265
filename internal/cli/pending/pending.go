// Package pending says what the serve that runs, or ran last, would do with the manifests as they are
// now: for podrun get while serve is down, and for podrun wait, which need not wait for a pod that no
// manifest names.
//
// It reads manifests only if they are files: other sources may take long, or run something. Begin
// reading at Serve.
package pending

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/names"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/changes"
	"podrun.io/podrun/internal/pod"
)

// Serve is the serve of the directories in Options, which runs or ran last.
type Serve struct {
	Options agent.Options
	Reader  *query.Reader
	Streams cli.Streams
}

// readTime is how long the manifests may take to be read.
const readTime = 3 * time.Second

// diff returns what serve would change, as podrun diff does. ok is false if that is not known.
func (s Serve) diff(ctx context.Context) (all []changes.Change, desired manifest.Desired, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	o, ok, err := flags.AsServe(s.Options)
	if err == nil && ok {
		all, desired, err = agent.Diff(ctx, o)
	}
	return all, desired, ok && err == nil
}

// Desired returns what the manifests have now, and whether that is known.
func (s Serve) Desired(ctx context.Context) (manifest.Desired, bool) {
	_, desired, ok := s.diff(ctx)
	return desired, ok
}

// maxNamed is the maximum number of pods that Text names for each action.
const maxNamed = 3

// Text says what serve would do if it was started, as the end of a sentence; "" if it is not known.
func (s Serve) Text(ctx context.Context) string {
	all, desired, ok := s.diff(ctx)
	if !ok {
		return ""
	}
	names := map[changes.Action][]string{}
	for _, c := range all {
		if c.Action != changes.Keep && c.Kind == "" {
			names[c.Action] = append(names[c.Action], c.Key.String())
		}
	}
	var parts []string
	for _, action := range []changes.Action{changes.Create, changes.Replace, changes.Update, changes.Remove} {
		all := names[action]
		if len(all) == 0 {
			continue
		}
		part := string(action) + " " + strings.Join(all[:min(len(all), maxNamed)], ", ")
		if more := len(all) - maxNamed; more > 0 {
			part += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, part)
	}
	text := "change nothing"
	if len(parts) > 0 {
		text = strings.Join(parts, "; ")
	}
	if len(desired.Problems) > 0 {
		text += ", and cannot use " + printers.Count(len(desired.Problems), "manifest")
	}
	return text
}

// startTime is how long a serve that was started a moment ago may take until it shows that it runs.
const startTime = 2 * time.Second

// starts reports whether a podrun runs, or does so before the time to wait is over.
func (s Serve) starts(ctx context.Context, wait time.Duration) bool {
	for end := time.Now().Add(wait); ; {
		_, alive := s.Reader.Owners.LastSeen()
		switch {
		case alive || owner.Serving(s.Options.Dirs):
			return true
		case ctx.Err() != nil || time.Now().After(end):
			return false
		}
		select {
		case <-ctx.Done():
		case <-time.After(startTime / 40):
		}
	}
}

// CheckAwaited returns an error if a pod that does not exist is in no manifest of the serve that runs, and warns if no
// process runs that could create it, nor does after wait.
func (s Serve) CheckAwaited(ctx context.Context, keys []pod.Key, wait time.Duration) error {
	there, err := s.Reader.Pods()
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(keys), func(key pod.Key) bool {
		_, err := query.FindIn(there, key.Namespace, key.Name)
		return err == nil
	})
	if len(missing) == 0 {
		return nil
	}
	if !owner.Serving(s.Options.Dirs) {
		if !s.starts(ctx, min(wait, startTime)) {
			key := pod.Key{Namespace: missing[0].Namespace, Name: query.BareName(missing[0].Name)}
			why := "no podrun process runs that could create it"
			if hint := names.MeantHint(s.Options.Dirs, "podrun wait", key); hint != "" {
				why += "; " + hint
			}
			cli.Warnf(s.Streams.ErrOut, "pod %s does not exist, and %s", key.Name, why)
		}
		return nil
	}
	_, desired, ok := s.diff(ctx)
	switch {
	case !ok || !desired.Complete:
		return nil
	case len(desired.Problems) > 0: // one of them may be the pod's
		cli.Warnf(s.Streams.ErrOut, "pod %s does not exist; manifest cannot be used: %v", missing[0].Name,
			desired.Problems[0].Err)
		return nil
	}
	named := append(slices.Collect(maps.Values(desired.Pods)), there...)
	for _, key := range missing {
		_, err := query.FindIn(named, key.Namespace, key.Name)
		var notFound *query.NotFoundError
		var failed *cli.Error
		if errors.As(err, &notFound) && errors.As(err, &failed) {
			key.Name = notFound.Name
			if names.MeantHint(s.Options.Dirs, "podrun wait", key) != "" {
				return err // a manifest names it: it is no pod
			}
			return &cli.Error{
				Code: cli.ExitFailed, Hint: failed.Hint,
				Err: fmt.Errorf("%w, and no manifest of podrun serve names it", err),
			}
		}
	}
	return nil
}
