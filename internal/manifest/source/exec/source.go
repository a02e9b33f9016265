// Package exec is the source of the manifests that a command prints, such as a generator's or a
// secrets tool's. It runs the command again and again; the last output that could be used stays.
// Package source decides what can be used. Begin reading at Source.Run.
package exec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/source"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/sys"
)

// Prefix precedes the command where a source of manifests is named.
const Prefix = "exec:"

// DefaultCheckFrequency is how often the command is run.
const DefaultCheckFrequency = 20 * time.Second

// timeout bounds one run of the command.
const timeout = time.Minute

// Kind is the kind of the sources that are commands.
var Kind = manifest.SourceKind{Name: "exec", Identity: "exec:", LogsProblems: true}

// Options describe a source.
type Options struct {
	// Command is a line for /bin/sh. It is shown in the pods' annotations, in logs and in errors.
	Command string
	// CheckFrequency is the time from the end of a run to the next one; 0: DefaultCheckFrequency.
	CheckFrequency time.Duration
	// NodeName, NoSuffix, Policy and Rules are those of manifest.LoadOptions.
	NodeName string
	NoSuffix bool
	Policy   *podsecurity.Policy
	Rules    support.Rules
	// CacheDir keeps the last good output over a reboot; empty: it is not kept.
	CacheDir string
	// CacheReadOnly reads what is cached and writes nothing.
	CacheReadOnly bool
	Log           *slog.Logger
}

// Source runs a command for the manifests that it prints.
type Source struct {
	name    string
	every   time.Duration
	program sys.Program
	last    *source.LastGood
}

// New returns a source that runs nothing before Run. The error is about the options.
func New(o Options) (*Source, error) {
	if strings.TrimSpace(o.Command) == "" || strings.ContainsRune(o.Command, 0) {
		return nil, fmt.Errorf("%s must be followed by a command", Prefix)
	}
	if o.CheckFrequency == 0 {
		o.CheckFrequency = DefaultCheckFrequency
	}
	name := Prefix + o.Command
	return &Source{
		name:  name,
		every: o.CheckFrequency,
		// Not an operand, which must not be a line of the shell: whoever starts podrun gives the
		// command.
		program: sys.Program{Name: "/bin/sh", Options: []string{"-c", o.Command}, MaxOutput: decode.MaxSize},
		last: source.NewLastGood(source.Options{
			Kind: Kind, Identity: o.Command, Name: name,
			NodeName: o.NodeName, NoSuffix: o.NoSuffix, Policy: o.Policy, Rules: o.Rules,
			CacheDir: o.CacheDir, CacheReadOnly: o.CacheReadOnly,
			Empty:  "the command printed nothing; to stop all pods, let it print a List without items",
			LogKey: "command", Log: o.Log,
		}),
	}, nil
}

// Name implements manifest.Source: it returns Prefix followed by the command.
func (s *Source) Name() string { return s.name }

// Run runs the command at once, and then again and again. It sends a Snapshot when there is
// something new; the first comes after the first run. A run that goes on when ctx ends is killed
// with all that it started.
func (s *Source) Run(ctx context.Context, out chan<- manifest.Snapshot) error {
	s.last.Recall(ctx)
	for {
		text, err := s.output(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.last.Fail(err, time.Now())
		default:
			s.last.Accept(text, source.Validators{}, time.Now())
		}
		if !s.last.Send(ctx, out) {
			return nil
		}
		select {
		case <-time.After(s.every):
		case <-ctx.Done():
			return nil
		}
	}
}

// output runs the command once and returns what it printed.
func (s *Source) output(ctx context.Context) ([]byte, error) {
	out, err := s.program.Run(ctx, timeout)
	if err != nil {
		if said := strings.TrimSpace(string(out.Stderr)); said != "" {
			err = fmt.Errorf("%w: %s", err, source.Brief(errors.New(said)))
		}
		return nil, err
	}
	if out.Truncated {
		return nil, fmt.Errorf("the command printed more than %d MiB", decode.MaxSize>>20)
	}
	return out.Stdout, nil
}
