package errtext

import (
	"encoding/json"
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

func TestJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "is empty",
		" \n":                           "is empty",
		"{\"a\":":                       "line 1: is not JSON: it ends too early",
		"text":                          "line 1: is not JSON",
		"{\n\"a\" 1}":                   "line 2: is not JSON",
		"[1]":                           "must be an object",
		`{"auths": 5}`:                  "line 1: auths: must be an object, not a number",
		`{"auths": {"h": {"auth": 5}}}`: "line 1: auths.auth: must be a string, not a number",
		`{"store": {}}`:                 "line 1: store: must be a string, not an object",
	} {
		var into struct {
			Auths map[string]struct {
				Auth string `json:"auth"`
			} `json:"auths"`
			Store string `json:"store"`
		}
		err := json.Unmarshal([]byte(text), &into)
		if got := JSON([]byte(text), err); err == nil || got.Error() != want {
			t.Errorf("%q: %v, want %s (%v)", text, got, want, err)
		}
	}
}

func TestWithoutPattern(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"must be lower case (e.g. 'a.b', regex used for validation is '[a-z]([-a-z]*')": "must be lower case (e.g. 'a.b')",
		"must be lower case": "must be lower case",
	} {
		if got := WithoutPattern(rule); got != want {
			t.Errorf("%s: %s", rule, got)
		}
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`unavailable: connection error: desc = "transport: Error while dialing: dial unix /s: connect: no such file or directory"`: "no such file or directory",
		`connection error: desc = "transport: Error while dialing: timeout"`:                                                       "timeout",
		"other": "other",
	} {
		if got := Dial(errors.New(text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
