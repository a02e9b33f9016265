package file

import (
	"context"
	"io"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/reader"
)

// Text is a manifest.Source whose manifest is read once, as from standard input.
type Text struct {
	in io.Reader
	o  manifest.LoadOptions
}

// NewStdin returns a Text that reads r to its end when Read or Run is called. It replaces the
// Origin in o by standard input.
func NewStdin(r io.Reader, o manifest.LoadOptions) *Text {
	o.Origin = manifest.Origin{Source: manifest.SourceFile, Path: manifest.Stdin}
	return &Text{in: r, o: o}
}

// Name returns manifest.Stdin, "-".
func (t *Text) Name() string { return manifest.Stdin }

// Read reads the input to its end and returns its snapshot. If ctx ends first, the snapshot has the
// error of ctx. The goroutine that reads then remains until the input ends, because a blocked read
// cannot be cancelled.
func (t *Text) Read(ctx context.Context) manifest.Snapshot {
	read := make(chan manifest.Snapshot, 1)
	go func() { read <- t.load() }()
	select {
	case s := <-read:
		return s
	case <-ctx.Done():
		return manifest.Snapshot{Source: manifest.Stdin, Err: ctx.Err()}
	}
}

func (t *Text) load() manifest.Snapshot {
	data, err := io.ReadAll(io.LimitReader(t.in, maxRead))
	if err != nil {
		return manifest.Snapshot{Source: manifest.Stdin, Err: err}
	}
	once := reader.Reader{Limit: reader.LoadTimeAlone}
	loaded, err := once.Load(nil, data, t.o)
	loaded.MarkSeen(manifest.Loaded{}, time.Now())
	return manifest.Snapshot{
		Source:    manifest.Stdin,
		Pods:      loaded.Pods,
		GivenUIDs: loaded.GivenUIDs,
		Objects:   loaded.Objects,
		Workloads: loaded.Workloads,
		Problems:  manifest.Problems(t.o.Origin, true, err),
		Warnings:  loaded.FieldWarnings(t.o.Origin),
	}
}

// Run sends one snapshot and returns when ctx ends.
func (t *Text) Run(ctx context.Context, out chan<- manifest.Snapshot) error {
	s := t.Read(ctx)
	select {
	case out <- s:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}
