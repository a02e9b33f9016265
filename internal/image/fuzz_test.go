package image

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// FuzzCredentials looks up the credentials for a registry in arbitrary texts of a Secret or a
// config.json. A registry gets only the credentials of an entry for it, or for a path of the
// repository on it.
func FuzzCredentials(f *testing.F) {
	const auth = "bWU6d29yZA==" // me:word
	for _, text := range []string{
		`{"auths":{"a.example":{"auth":"` + auth + `"},"a.example/team":{"username":"you","password":"secret"}}}`,
		`{"https://a.example/v1/":{"auth":"` + auth + `"}}`, `{"auths":{"https://index.docker.io/v1/":{"identitytoken":"t"}}}`,
		`{"auths":{"a.example":{"auth":"%"}}}`, `{"auths":{"a.example":null},"credsStore":"x"}`, `{"auths":"hunter2"}`, "no JSON", `{"":{"username":"u"}}`,
		`{"auths":{"*.example":{"auth":"` + auth + `"},"https://a.example/v2/team/":{"username":"a","password":"b"}}}`,
	} {
		f.Add([]byte(text), "a.example", "team/image")
		f.Add([]byte(text), "registry-1.docker.io", "library/busybox")
		f.Add([]byte(text), "b.example", "")
	}
	f.Fuzz(func(t *testing.T, text []byte, host, repository string) {
		keys := NewKeyring(Logins{text}, Credentials{}, repository)
		user, secret, err := keys.For(t.Context(), host)
		again, secret2, err2 := NewKeyring(Logins{text}, Credentials{}, repository).For(t.Context(), host)
		if user != again || secret != secret2 || err != nil || err2 != nil {
			t.Fatal("another answer to the same question, or an error", err, err2)
		}
		for keys.Next() { // to the last ones
			if user, secret, err = keys.For(t.Context(), host); err != nil || user+secret == "" {
				t.Fatal("nothing, though there should be more", err)
			}
		}
		if user+secret == "" {
			return
		}
		var known config
		if err := json.Unmarshal(text, &known); err != nil {
			t.Fatalf("found in what is no JSON object: %v", err)
		}
		if known.Auths == nil && json.Unmarshal(text, &known.Auths) != nil {
			t.Fatal("found where there are no entries")
		}
		for key, e := range known.Auths {
			u, s, err := e.credentials(key)
			if err == nil && u == user && s == secret && isFor(key, host, repository) {
				return
			}
		}
		t.Errorf("%s/%s is told %q, %q, which no entry for it says", host, repository, user, secret)
	})
}

// isFor reports whether an entry with the key applies to a repository on a registry host.
func isFor(key, host, repository string) bool {
	hosts := []string{host}
	if slices.Contains([]string{"registry-1.docker.io", "index.docker.io", "docker.io"}, host) {
		hosts = []string{"registry-1.docker.io", "index.docker.io", "docker.io"}
	}
	whole := "/" + strings.Trim(repository, "/") + "/"
	for _, scheme := range []string{"", "https://", "http://"} {
		plain, ok := strings.CutPrefix(key, scheme)
		if !ok {
			continue
		}
		of, path, _ := strings.Cut(plain, "/")
		for _, version := range []string{"", "v1/", "v2/"} {
			under, ok := strings.CutPrefix(path, version)
			under = "/" + strings.Trim(under, "/")
			if ok && (under == "/" || strings.HasPrefix(whole, under+"/")) &&
				(slices.Contains(hosts, of) || strings.ContainsAny(of, "*?[\\")) {
				return true
			}
		}
	}
	return false
}
