package secretenv

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestHush(t *testing.T) {
	for _, c := range []struct {
		said   string
		values []string
		want   string
	}{
		{`exec: "word": not found`, []string{"word"}, `exec: "<Secret>": not found`},
		{`exec: "me:word/x"`, []string{"", "word"}, `exec: "me:<Secret>/x"`},
		{fmt.Sprintf("exec: %q", "a\"b\nc"), []string{"a\"b\nc"}, `exec: "<Secret>"`},
		{"exec: password", []string{"pass", "password"}, "exec: <Secret>"},
		{"exec: other", []string{"word"}, "exec: other"},
		{"exec: other", nil, "exec: other"},
	} {
		if got := Hush(errors.New(c.said), c.values).Error(); got != c.want {
			t.Errorf("%q without %q: %q, want %q", c.said, c.values, got, c.want)
		}
	}
	if Hush(nil, []string{"word"}) != nil {
		t.Error("an error out of nothing")
	}
	if err := Hush(fmt.Errorf("other: %w", fs.ErrExist), []string{"word"}); !errors.Is(err, fs.ErrExist) {
		t.Error("an error that tells nothing is not itself any more")
	}
}
