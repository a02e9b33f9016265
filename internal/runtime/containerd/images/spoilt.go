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

// How often, and how long after each other, containerd is asked to let go of a part that it is just closing.
const (
	abortTries = 20
	abortAgain = 50 * time.Millisecond
)

// parts is what is known of contents that are there in part.
type parts interface {
	Abort(ctx context.Context, ref string) error
}

// dropSpoilt removes what an earlier pull fetched in part, if the error says that it cannot be completed: its
// digest is wrong, or the registry has nothing to go on with. containerd itself would go on with it for
// ever. It reports whether anything was removed that is not in dropped, to which it adds that: a registry that spoils
// the same part again has had its chance.
func (s *Store) dropSpoilt(ctx context.Context, err error, dropped map[string]bool) bool {
	var answer remotes.ErrUnexpectedStatus
	outOfRange := errors.As(err, &answer) && answer.StatusCode == http.StatusRequestedRangeNotSatisfiable
	if ctx.Err() != nil || !outOfRange && !errdefs.IsFailedPrecondition(err) {
		return false
	}
	named := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindAllString(err.Error(), -1)
	begun, err := s.client.ContentStore().ListStatuses(ctx)
	if err != nil {
		s.o.Log.Debug("it is not known what was fetched in part", "why", err)
		return false
	}
	more := false
	for _, status := range begun {
		_, digest, _ := strings.Cut(status.Ref, "-") // as layer-sha256:…
		if !slices.Contains(named, digest) || dropped[digest] {
			continue
		}
		if err := abort(ctx, s.client.ContentStore(), status.Ref); err != nil {
			s.o.Log.Warn("what was fetched in part is spoilt and cannot be removed", "digest", digest, "why", err)
			continue
		}
		s.o.Log.Info("what was fetched in part is spoilt and fetched again", "digest", digest)
		dropped[digest], more = true, true
	}
	return more
}

// abort removes a part. containerd closes it some time after a pull has ended, and what it writes then can come
// into the way of removing it.
func abort(ctx context.Context, in parts, ref string) error {
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
