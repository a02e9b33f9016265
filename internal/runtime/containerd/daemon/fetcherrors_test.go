package daemon_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	remotes "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

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
		err := daemon.TransferError(errors.New(text))
		if daemon.IsRefused(err) != (want != "") || want != "" && err.Error() != want {
			t.Errorf("%q: %q", text, err)
		}
	}
	other := fmt.Errorf("no match for platform in manifest: %w", errdefs.ErrNotFound)
	if daemon.IsRefused(daemon.TransferError(other)) || daemon.RefusalOf(other) != daemon.OtherPlatform {
		t.Error("an image for other platforms is not left to podrun")
	}
	missing := fmt.Errorf("hub/a:1: %w", errdefs.ErrNotFound)
	if err := daemon.TransferError(missing); !daemon.IsRefused(err) || !errdefs.IsNotFound(err) {
		t.Error(err)
	}
}

// TestCorrupt checks which errors name content that cannot be completed. Those of a client have a
// kind beside their text, and keep it.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	status := func(code int) error {
		return fmt.Errorf("copying: %w", remotes.ErrUnexpectedStatus{
			Status: fmt.Sprint(code, " text"), StatusCode: code, RequestMethod: "GET", RequestURL: "http://hub/blobs/" + digest,
		})
	}
	for what, x := range map[string]struct {
		err     error
		corrupt bool
	}{
		"another digest":  {fmt.Errorf("unexpected commit digest %s: %w", digest, errdefs.ErrFailedPrecondition), true},
		"nothing after":   {status(416), true},
		"a refusal":       {status(403), false},
		"no such content": {fmt.Errorf("%s: %w", digest, errdefs.ErrNotFound), false},
	} {
		err := daemon.FetchError(x.err)
		var corrupt *daemon.CorruptError
		if errors.As(err, &corrupt) != x.corrupt || !errors.Is(err, x.err) || err.Error() != x.err.Error() {
			t.Errorf("%s: %v", what, err)
		}
		if x.corrupt && !slices.Equal(corrupt.Digests, []string{digest}) {
			t.Errorf("%s: %q", what, corrupt.Digests)
		}
	}
	if daemon.FetchError(nil) != nil || daemon.TransferError(nil) != nil {
		t.Error("no error became one")
	}
}
