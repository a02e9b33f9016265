package pull

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// abortTries and abortAgain are the number of attempts, and the pause between them, to remove
// partial content that containerd is still closing.
const (
	abortTries = 20
	abortAgain = 50 * time.Millisecond
)

// aborter removes partially fetched content.
type aborter interface {
	Abort(ctx context.Context, ref string) error
}

// dropCorrupt removes what an earlier pull fetched partially, if the error is a daemon.CorruptError.
// containerd itself would try to continue it for ever. dropCorrupt reports whether it removed anything that is not in
// dropped, and adds that to dropped: if the registry sends the same wrong content again, the pull
// fails.
func (p *Puller) dropCorrupt(ctx context.Context, err error, dropped map[string]bool) bool {
	var corrupt *daemon.CorruptError
	if ctx.Err() != nil || !errors.As(err, &corrupt) {
		return false
	}
	begun, err := p.o.Client.ContentStore().ListStatuses(ctx)
	if err != nil {
		p.o.Log.Debug("partially fetched content cannot be listed", "err", err)
		return false
	}
	more := false
	for _, status := range begun {
		_, digest, _ := strings.Cut(status.Ref, "-") // for example layer-sha256:…
		if !slices.Contains(corrupt.Digests, digest) || dropped[digest] {
			continue
		}
		if err := abort(ctx, p.o.Client.ContentStore(), status.Ref); err != nil {
			p.o.Log.Warn("partially fetched content is corrupt and cannot be removed", "digest", digest, "err", err)
			continue
		}
		p.o.Log.Info("partially fetched content is corrupt; it is fetched again", "digest", digest)
		dropped[digest], more = true, true
	}
	return more
}

// abort removes partial content. containerd closes the content some time after a pull has ended,
// and what it writes then can make the removal fail, so abort retries.
func abort(ctx context.Context, in aborter, ref string) error {
	var err error
	for range abortTries {
		if err = in.Abort(ctx, ref); err == nil || daemon.IsNotFound(err) {
			return nil
		}
		select {
		case <-time.After(abortAgain):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
	return err
}
