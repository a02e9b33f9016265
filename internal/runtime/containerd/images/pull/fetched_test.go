package pull_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"

	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/test/testimage"
)

// incomplete begins a pull that has fetched part of a layer and waits for more until cut is called.
func (h *hub) incomplete(t *testing.T, s *images.Store) (cut func()) {
	t.Helper()
	half := make(chan struct{})
	h.misbehave(func(w http.ResponseWriter, q *http.Request) bool {
		answer := httptest.NewRecorder()
		if q.Method != http.MethodGet || !strings.Contains(q.URL.Path, "/blobs/") {
			return false
		}
		whole := q.Clone(q.Context())
		whole.Header.Del("Range")
		h.inner.ServeHTTP(answer, whole)
		if answer.Body.Len() < 100_000 {
			return false // the config
		}
		w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
		_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
		w.(http.Flusher).Flush()
		close(half)
		<-q.Context().Done()
		panic(http.ErrAbortHandler)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Pull(ctx, h.ref)
		done <- err
	}()
	<-half
	return func() {
		t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the pull that was cut: %v", err)
		}
		h.misbehave(nil)
	}
}

// stored counts containerd's complete contents, its incomplete contents and its leases.
func stored(t *testing.T, d daemontest.Daemon) (whole, begun, leases int) {
	t.Helper()
	ctx, c := d.Client(t)
	err := c.ContentStore().Walk(ctx, func(content.Info) error { whole++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	half, err := c.ContentStore().ListStatuses(ctx)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.LeasesService().List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return whole, len(half), len(all)
}

// TestDropFetched checks that what an interrupted pull has fetched is kept for the next pull,
// whatever fails between the two and whoever pulls, and that DropFetched releases it, without
// harming a pull in progress.
func TestDropFetched(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			s := connect(t, d)
			big := make([]byte, 4<<20)
			_, _ = rand.NewChaCha8([32]byte{}).Read(big) // that no compression makes small
			h, _ := newHub(t, d, s, testimage.File("big", 0o644, big))
			before, _, leases := stored(t, d)

			cut := h.incomplete(t, s)
			other := connect(t, d) // a podrun beside it
			if n, err := other.DropFetched(t.Context()); n != 0 || err != nil {
				t.Errorf("while the pull goes on: %d, %v", n, err)
			}
			daemontest.Eventually(t, "the layer to be there in part", func() bool { _, begun, _ := stored(t, d); return begun == 1 })
			cut()
			// The registry is down for a try, which fetches nothing; then it is tried by another podrun.
			h.misbehave(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true })
			failing(t, s, h.ref)
			failing(t, other, h.ref)
			whole, begun, held := stored(t, d)
			if whole <= before || begun != 1 || held != leases+1 {
				t.Errorf("kept: %d contents of %d, %d in part, %d leases of %d", whole, before, begun, held, leases)
			}
			if n, err := s.DropFetched(t.Context()); n != 1 || err != nil {
				t.Errorf("dropped %d, %v", n, err)
			}
			if whole, begun, held := stored(t, d); whole != before || begun != 0 || held != leases {
				t.Errorf("after it: %d contents, %d in part, %d leases", whole, begun, held)
			}
			h.misbehave(nil)
			if _, err := s.Pull(t.Context(), h.ref); err != nil {
				t.Error(err)
			}
			locks, err := os.ReadDir(d.Dirs.ImageFiles().Fetching())
			if _, _, held := stored(t, d); err != nil || len(locks) > 0 || held != leases {
				t.Errorf("%d leases; locks: %v, %v", held, locks, err)
			}
		})
	}
}
