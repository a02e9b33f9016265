package pull_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
)

// TestCredentialsInTurn checks that a pull which a registry refuses is tried with the pod's next credentials, then with
// the node's, whoever fetches the image, and which error is left if all fail.
func TestCredentialsInTurn(t *testing.T) {
	d := daemontest.Embedded(t)
	file := filepath.Join(t.TempDir(), "config.json")
	itself, own := options(t, d), options(t, d)
	itself.Credentials, own.Credentials = image.Credentials{Path: file}, image.Credentials{Path: file}
	own.HostsDir = t.TempDir()
	if err := os.Mkdir(filepath.Join(own.HostsDir, "some.example"), 0o755); err != nil {
		t.Fatal(err)
	}
	for who, o := range map[string]images.Options{"containerd": itself, "podrun": own} {
		t.Run(who, func(t *testing.T) {
			s := connectWith(t, d, "", o)
			h, _ := newHub(t, d, s)
			login := func(users ...string) []byte {
				var all []string
				for i, user := range users {
					path := strings.TrimPrefix(h.URL, "http://") + []string{"/team/busybox", "/team", ""}[i]
					all = append(all, fmt.Sprintf(`%q:{"username":%q,"password":"x"}`, path, user))
				}
				return []byte(`{"auths":{` + strings.Join(all, ",") + `}}`)
			}
			var mu sync.Mutex
			var users []string
			h.misbehave(func(w http.ResponseWriter, q *http.Request) bool {
				user, _, _ := q.BasicAuth()
				code := map[string]int{"": 401, "wrong": 401, "other": 403, "stranger": 404, "broken": 500}[user]
				mu.Lock()
				defer mu.Unlock()
				if user != "" && !slices.Contains(users, user) {
					users = append(users, user)
				}
				if code == 0 {
					return false
				}
				w.Header().Set("WWW-Authenticate", `Basic realm="hub"`)
				http.Error(w, `{"errors":[{"code":"X","message":"not for `+user+`"}]}`, code)
				return true
			})
			const denied, missing = "give podrun credentials", "check the image's name"
			for _, c := range []struct {
				pod       [][]byte
				node      string
				users     string
				fix, text string // if it fails
			}{
				{[][]byte{login("wrong"), login("me")}, "{}", "wrong me", "", ""},
				{[][]byte{login("other", "stranger", "me")}, "{}", "other stranger me", "", ""},
				{[][]byte{login("wrong")}, string(login("other", "me")), "wrong other me", "", ""},
				{[][]byte{login("me")}, string(login("wrong")), "me", "", ""},
				{nil, string(login("wrong", "me")), "wrong me", "", ""},
				{[][]byte{login("other")}, string(login("wrong")), "other wrong", denied, "403"},
				{[][]byte{login("wrong")}, string(login("stranger")), "wrong stranger", missing, "not found"},
				{[][]byte{login("stranger")}, string(login("wrong")), "stranger wrong", missing, "not found"},
				{[][]byte{login("other")}, `no JSON`, "other", denied, "403"},
				{[][]byte{login("wrong", "broken", "me")}, "{}", "wrong broken", "", "500"},
			} {
				if err := os.WriteFile(file, []byte(c.node), 0o600); err != nil {
					t.Fatal(err)
				}
				users = nil
				_, err := s.Pull(t.Context(), h.ref, c.pod...)
				if got := strings.Join(users, " "); got != c.users || (err == nil) != (c.text == "") {
					t.Errorf("the registry knows %q, want %q; %v", got, c.users, err)
				}
				if err != nil && (!strings.Contains(err.Error(), c.text) || (fixOf(err) == "") != (c.fix == "") || !strings.HasPrefix(fixOf(err), c.fix)) {
					t.Errorf("after %q: %q, %v", c.users, fixOf(err), err)
				}
				if c.text == "" {
					if digest, err := s.RegistryDigest(t.Context(), h.ref, c.pod...); digest == "" || err != nil {
						t.Errorf("%q, %v", digest, err)
					}
				}
				if _, err := s.PruneImages(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
