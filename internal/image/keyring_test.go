package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tried returns all that a registry's host is told in turn, as "user secret" each.
func tried(t *testing.T, k *Keyring, host string) string {
	t.Helper()
	var all []string
	for {
		user, secret, err := k.For(t.Context(), host)
		text := user + " " + secret
		var unreadable *CredentialsError
		if err != nil {
			if text = "error"; !errors.As(err, &unreadable) {
				t.Errorf("%T: %v", err, err)
			}
		}
		all = append(all, text)
		if !k.Next() {
			return strings.Join(all, ", ")
		}
	}
}

// TestNextCredentials checks the order of the credentials for a repository: the pod's, those for the longest path
// first, then the node's, then those of its credential helper.
func TestNextCredentials(t *testing.T) {
	bin := t.TempDir()
	asked := filepath.Join(bin, "asked")
	helper := "#!/bin/sh\necho x >>" + asked + "\ncat >/dev/null\necho '{\"Username\":\"helper\",\"Secret\":\"0\"}'\n"
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-test"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	login := func(user, password string) string { return `{"username":"` + user + `","password":"` + password + `"}` }
	file := filepath.Join(t.TempDir(), "config.json")
	node := Credentials{Path: file}
	text := `{"auths":{"a.example":` + login("node", "1") + `,"a.example/team":` + login("node", "2") + `,"b.example":` + login("node", "3") +
		`,"c.example/team":{"auth":"!"},"c.example":` + login("node", "4") + `},"credsStore":"test"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	logins := Logins{
		[]byte(`{"auths":{"a.example":` + login("pod", "1") + `,"*.example/team/app":` + login("pod", "2") + `}}`),
		[]byte(`{"auths":{"a.example":` + login("pod", "3") + `,"https://a.example":` + login("pod", "1") + `,"a.example/team":` + login("pod", "4") + `}}`),
	}
	for host, want := range map[string]string{
		"a.example": "pod 4, pod 1, pod 3, pod 2, node 2, node 1, helper 0",
		"b.example": "pod 2, node 3, helper 0", "c.example": "pod 2, error, node 4, helper 0", "d.other": "helper 0",
	} {
		if got := tried(t, NewKeyring(logins, node, "team/app"), host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	// Each host goes on by itself, and a helper is asked once and only when it is needed.
	if err := os.Remove(asked); err != nil {
		t.Fatal(err)
	}
	k := NewKeyring(logins, node, "team/app")
	_, _, _ = k.For(t.Context(), "b.example")
	if _, err := os.Stat(asked); !k.Next() || err == nil {
		t.Error("no more, or the helper was asked before it is needed")
	}
	if user, secret, err := k.For(t.Context(), "a.example"); user+secret != "pod4" || err != nil {
		t.Errorf("a host that is asked about later begins with %q, %q, %v", user, secret, err)
	}
	k.Next()
	for range 2 {
		if user, _, err := k.For(t.Context(), "b.example"); user != "helper" || err != nil {
			t.Errorf("%q, %v", user, err)
		}
	}
	if text, err := os.ReadFile(asked); string(text) != "x\n" || err != nil {
		t.Errorf("the helper was asked: %q, %v", text, err)
	}
}
