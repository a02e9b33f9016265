package filesource

import (
	"context"
	"io"
	"time"

	"podrun.io/podrun/internal/manifest"
)

// Text is a source whose manifest is given once, as on standard input.
type Text struct{ snapshot manifest.Snapshot }

// NewStdin reads r to its end. The options' origin is standard input.
func NewStdin(r io.Reader, o manifest.LoadOptions) *Text {
	origin := manifest.Origin{Source: manifest.SourceFile, Path: manifest.Stdin}
	o.Origin = origin
	data, err := io.ReadAll(io.LimitReader(r, maxRead))
	if err != nil {
		return &Text{manifest.Snapshot{Source: manifest.Stdin, Err: err}}
	}
	loaded, err := manifest.Load(data, o)
	manifest.MarkSeen(loaded.Pods, nil, time.Now())
	return &Text{manifest.Snapshot{Source: manifest.Stdin, Pods: loaded.Pods, Objects: loaded.Objects, Problems: manifest.Problems(origin, true, err)}}
}

// Name is "-".
func (t *Text) Name() string { return t.snapshot.Source }

// Run says it once and waits.
func (t *Text) Run(ctx context.Context, out chan<- manifest.Snapshot) error {
	select {
	case out <- t.snapshot:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}
