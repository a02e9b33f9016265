package image

import (
	"strings"
	"testing"
)

// TestKeys checks for which repositories an entry counts, by its key.
func TestKeys(t *testing.T) {
	t.Parallel()
	const hub = "registry-1.docker.io/myorg/app"
	for _, c := range []struct {
		key, name string
		want      bool
	}{
		{"docker.io", hub, true}, {"docker.io/myorg", hub, true}, {"index.docker.io/myorg", hub, true}, {"https://index.docker.io/v1/", hub, true},
		{"registry-1.docker.io/myorg/app", hub, true}, {"docker.io/my", hub, false}, {"docker.io", "ghcr.io/myorg/app", false},
		{"https://ghcr.io/", "ghcr.io/a/b", true}, {"http://ghcr.io", "ghcr.io/a/b", true}, {"ghcr.io/v1/", "ghcr.io/a/b", true},
		{"https://ghcr.io/v2/", "ghcr.io/a/b", true}, {"https://ghcr.io/v2/a", "ghcr.io/a/b", true}, {"ghcr.io/a/", "ghcr.io/a/b", true},
		{"ghcr.io/a/b", "ghcr.io/a/b", true}, {"ghcr.io/a/b/c", "ghcr.io/a/b", false}, {"ghcr.io/v2", "ghcr.io/a/b", false},
		{"*.example.com", "reg.example.com/a", true}, {"*.example.com/a", "reg.example.com/a/b", true}, {"r?g*.example.com", "reg1.example.com/a", true},
		{"*.example.com", "a.reg.example.com/a", false}, {"*.example.com", "example.com/a", false}, {"*", "example.com/a", false},
		{"*.example.com", "reg.example.com:5000/a", false}, {"*.example.com:5000", "reg.example.com:5000/a", true}, {"[.example.com", "reg.example.com/a", false},
		{"10.0.0.1:5000", "10.0.0.1:5000/a", true}, {"[::1]:5000", "[::1]:5000/a", true}, {"[::2]:5000", "[::1]:5000/a", false}, {"", "reg.example.com/a", false},
	} {
		host, repository, _ := strings.Cut(c.name, "/")
		logins := Logins{[]byte(`{"auths":{"` + c.key + `":{"username":"u","password":"p"}}}`)}
		want := map[bool]string{true: "u p", false: " "}[c.want]
		user, secret, _ := NewKeyring(logins, Credentials{}, repository).For(t.Context(), host)
		if got := user + " " + secret; got != want {
			t.Errorf("%s for %s: %q, want %q", c.key, c.name, got, want)
		}
	}
	for auth, want := range map[string]string{"dTpwYQ==": "u pa", "dTpwYQ": "u pa", " dTpwYQ\n": "u pa", "dTpwYWE": "u paa"} {
		text := strings.ReplaceAll(`{"auths":{"a.example":{"auth":"`+auth+`"}}}`, "\n", `\n`)
		user, secret, _ := NewKeyring(Logins{[]byte(text)}, Credentials{}, "x").For(t.Context(), "a.example")
		if got := user + " " + secret; got != want {
			t.Errorf("auth %q: %q, want %q", auth, got, want)
		}
	}
}
