package agenterror

import (
	"errors"
	"testing"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/cli"
)

// TestHintsOfOwnedPods: the hints say what was not started or stopped, and what to do about the
// process that owns the pod.
func TestHintsOfOwnedPods(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command string
		serve   bool
		want    string
	}{
		{"podrun down", false, "nothing was stopped; wait until that one has ended, or end it"},
		{"podrun once", false, "nothing was started; wait until that one has ended, or end it"},
		{"podrun once", true, "nothing was started; serve keeps it: take its manifest away first, or leave it to serve"},
	} {
		var f *cli.Error
		err := Explain(t.Context(), c.command, &owner.OwnedError{Serve: c.serve})
		if !errors.As(err, &f) || f.Code != cli.ExitUsage || f.Hint != c.want {
			t.Errorf("%s: got %+v, want %q", c.command, f, c.want)
		}
	}
}

// TestHintsOfManifests: the hint names validate only if that finds the error.
func TestHintsOfManifests(t *testing.T) {
	t.Parallel()
	for valid, want := range map[bool]string{
		true: "nothing was started", false: "nothing was started; podrun validate checks manifests without running them",
	} {
		var f *cli.Error
		err := Explain(t.Context(), "podrun once", &sources.ManifestError{Err: errors.New("bad"), Valid: valid})
		if !errors.As(err, &f) || f.Code != cli.ExitUsage || f.Hint != want {
			t.Errorf("valid %t: got %+v, want %q", valid, f, want)
		}
	}
}
