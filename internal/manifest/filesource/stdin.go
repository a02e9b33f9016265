package filesource

import (
	"context"
	"io"
	"time"

	"podrun.io/podrun/internal/manifest"
)

// Text is a source whose manifest is given once, as on standard input.
type Text struct {
	in io.Reader
	o  manifest.LoadOptions
}

// NewStdin returns a source that reads r to its end once, when it is asked to. The options' origin is standard input.
func NewStdin(r io.Reader, o manifest.LoadOptions) *Text {
	o.Origin = manifest.Origin{Source: manifest.SourceFile, Path: manifest.Stdin}
	return &Text{in: r, o: o}
}

// Name is "-".
func (t *Text) Name() string { return manifest.Stdin }

// Read reads all there is. When ctx ends first it returns ctx's error in the snapshot; who is to write the input may
// take for ever, and the read that waits for that goes on alone.
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
	var once manifest.Reader
	loaded, err := once.Load(nil, data, t.o)
	manifest.MarkSeen(loaded.Pods, nil, time.Now())
	return manifest.Snapshot{
		Source: manifest.Stdin, Pods: loaded.Pods, Objects: loaded.Objects, Problems: manifest.Problems(t.o.Origin, true, err),
	}
}

// Run says it once and waits.
func (t *Text) Run(ctx context.Context, out chan<- manifest.Snapshot) error {
	s := t.Read(ctx)
	select {
	case out <- s:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}
