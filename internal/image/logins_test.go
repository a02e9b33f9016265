package image

import "testing"

func TestLogins(t *testing.T) {
	t.Parallel()
	const me, you = "bWU6d29yZA==", "eW91OnNlY3JldA==" // me:word, you:secret
	logins := Logins{
		[]byte("no JSON"), []byte(`{"auths":{"broken.example":{"auth":"%"}}}`), []byte(`{"credsStore":"evil","credHelpers":{"helped.example":"evil"}}`),
		[]byte(`{"auths":{"a.example":{"auth":"` + me + `"},"a.example/team":{"auth":"` + you + `"}}}`),
		[]byte(`{"old.example":{"username":"old","password":"form"},"a.example":{"auth":"` + you + `"}}`),
		[]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"` + me + `"}}}`),
	}
	for _, c := range []struct{ host, repository, want string }{
		{"a.example", "other/image", "me word"}, {"a.example", "team/image", "you secret"}, {"old.example", "x", "old form"},
		{"registry-1.docker.io", "library/x", "me word"}, {"broken.example", "x", "none"}, {"helped.example", "x", "none"}, {"b.example", "x", "none"},
	} {
		got := "none"
		if user, secret, err := NewKeyring(logins, Credentials{}, c.repository).For(t.Context(), c.host); user+secret != "" || err != nil {
			got = user + " " + secret
		}
		if got != c.want {
			t.Errorf("%s/%s: %s, want %s", c.host, c.repository, got, c.want)
		}
	}
	if (Logins{}).Key() != "" || logins.Key() == logins[1:].Key() {
		t.Error("logins are taken for others")
	}
}
