package decode

import (
	"fmt"
	"testing"
)

func TestKeysSpelledTwice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: {1: x, '1': y}":          `[line 1: a.1: duplicate key "1", which was spelled 1]`,
		"a:\n- yes: x\n  true: y":    `[line 3: duplicate key true]`,
		"a:\n  0x10: x\n  \"16\": y": `[line 3: a.16: duplicate key "16", which was spelled 0x10]`,
		"1: x\n1.0: y":               `[line 2: 1: duplicate key "1", which was spelled 1]`,
		"'a': x\n\"a\": y":           `[line 2: a: duplicate key "a"]`,
		"on: x\noff: y":              "[]",
		"'1': x\n2: y":               "[]",
		"1: x\n1: y":                 `[line 2: duplicate key 1]`,
		"a: b\n<<: {1: x}\n2: y":     "[]",
	} {
		if _, errs := Parse([]byte(text)); fmt.Sprint(errs) != want {
			t.Errorf("%q: got %v, want %s", text, errs, want)
		}
	}
}
