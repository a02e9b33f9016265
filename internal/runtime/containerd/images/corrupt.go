package images

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	remotes "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

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

// dropCorrupt removes what an earlier pull fetched partially, if the error means that it cannot be
// completed: its digest is wrong, or the registry has no content after it. containerd itself would
// try to continue it for ever. dropCorrupt reports whether it removed anything that is not in
// dropped, and adds that to dropped: if the registry sends the same wrong content again, the pull
// fails.
func (s *Store) dropCorrupt(ctx context.Context, err error, dropped map[string]bool) bool {
	var answer remotes.ErrUnexpectedStatus
	outOfRange := errors.As(err, &answer) && answer.StatusCode == http.StatusRequestedRangeNotSatisfiable
	if ctx.Err() != nil || !outOfRange && !errdefs.IsFailedPrecondition(err) {
		return false
	}
	named := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindAllString(err.Error(), -1)
	begun, err := s.client.ContentStore().ListStatuses(ctx)
	if err != nil {
		s.o.Log.Debug("partially fetched content cannot be listed", "err", err)
		return false
	}
	more := false
	for _, status := range begun {
		_, digest, _ := strings.Cut(status.Ref, "-") // for example layer-sha256:…
		if !slices.Contains(named, digest) || dropped[digest] {
			continue
		}
		if err := abort(ctx, s.client.ContentStore(), status.Ref); err != nil {
			s.o.Log.Warn("partially fetched content is corrupt and cannot be removed", "digest", digest, "err", err)
			continue
		}
		s.o.Log.Info("partially fetched content is corrupt; it is fetched again", "digest", digest)
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
