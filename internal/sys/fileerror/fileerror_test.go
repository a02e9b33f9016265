package fileerror

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
)

func TestWords(t *testing.T) {
	t.Parallel()
	_, err := os.Open("/none")
	wrapped := fmt.Errorf("reading: %w", err)
	for _, e := range []error{err, wrapped} {
		if got := Named(e); got.Error() != "/none: no such file or directory" || !errors.Is(got, fs.ErrNotExist) {
			t.Error(got)
		}
		if got := Cause(e); got.Error() != "no such file or directory" || !errors.Is(got, fs.ErrNotExist) {
			t.Error(got)
		}
	}
	other := errors.New("other")
	if !errors.Is(Named(other), other) || !errors.Is(Cause(other), other) || Named(nil) != nil || Cause(nil) != nil {
		t.Error("other errors are changed")
	}
	if CheckPEM("/f", []byte("text")) == nil || CheckPEM("/f", []byte("-----BEGIN A-----\nAAAA\n-----END A-----\n")) != nil {
		t.Error("PEM")
	}
}
