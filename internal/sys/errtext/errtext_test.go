package errtext

import (
	"errors"
	"testing"
)

func TestSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b error
		want bool
	}{
		{nil, nil, true}, {errors.New("a"), nil, false}, {nil, errors.New("a"), false},
		{errors.New("a"), errors.New("a"), true}, {errors.New("a"), errors.New("b"), false},
	} {
		if Same(c.a, c.b) != c.want {
			t.Errorf("%v, %v", c.a, c.b)
		}
	}
}
