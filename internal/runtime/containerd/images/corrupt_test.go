package images

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
)

// closing simulates a containerd that is still closing content that is to be removed.
type closing struct {
	asked, until int
	then         error
}

func (c *closing) Abort(context.Context, string) error {
	if c.asked++; c.asked <= c.until {
		return errors.New("unlinkat ingest/f7df: directory not empty")
	}
	return c.then
}

func TestAbort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			closing
			fails bool
		}{
			{closing{until: 0}, false}, {closing{until: 3}, false}, {closing{until: 1 << 30}, true},
			{closing{until: 1, then: fmt.Errorf("no such part: %w", errdefs.ErrNotFound)}, false},
		} {
			if err := abort(t.Context(), &c.closing, "layer-sha256:00"); (err != nil) != c.fails {
				t.Errorf("%+v: %v", c.closing, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		stuck := closing{until: 1 << 30}
		if err := abort(ctx, &stuck, "layer-sha256:00"); !errors.Is(err, context.Canceled) || stuck.asked != 1 {
			t.Errorf("given up: %v after %d tries", err, stuck.asked)
		}
	})
}

// TestRefusal checks that a refusal by a registry or by containerd's own rules is reported once and
// not repeated by podrun, and that podrun retries where its own request could have another result.
func TestRefusal(t *testing.T) {
	t.Parallel()
	const asked = "failed to resolve image: unexpected status from HEAD request to http://hub/v2/a/manifests/1: "
	for text, want := range map[string]string{
		asked + "429 Too Many Requests":                                                                               asked + "429 Too Many Requests",
		asked + "403 Forbidden\ndenied: no\ndenied: no":                                                               asked + "403 Forbidden\ndenied: no",
		asked + "416 Requested Range Not Satisfiable\nunknown: what?":                                                 "",
		"image verifier bindir blocked pull of a with digest b for reason: unsigned":                                  "image verifier bindir blocked pull of a with digest b for reason: unsigned",
		"failed to resolve image: failed to do request: Head \"https://hub/v2/\": dial tcp: lookup hub: no such host": "",
		"short read: expected 331 bytes but got 7: unexpected EOF":                                                    "",
	} {
		got := ""
		if err := refusal(errors.New(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	missing := fmt.Errorf("hub/a:1: %w", errdefs.ErrNotFound)
	if err := refusal(missing); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
}
