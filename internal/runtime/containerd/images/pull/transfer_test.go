package pull_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/test/testimage"
)

// ours reports whether this process has the socket of a TCP connection, given the connection's
// address at this end.
func ours(t *testing.T, address string) bool {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(table), "\n") {
		fields := strings.Fields(line) // its number, local address, peer, …, inode
		if len(fields) < 10 || !strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", number)) {
			continue
		}
		open, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range open {
			if to, err := os.Readlink(fd); err == nil && to == "socket:["+fields[9]+"]" {
				return true
			}
		}
		return false
	}
	t.Errorf("no connection of %s", address)
	return false
}

// TestWhoFetches checks that containerd fetches an image itself if it does so exactly as podrun
// would, and only then.
func TestWhoFetches(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			d := start(t)
			set := options(t, d)
			set.HostsDir = t.TempDir()
			if err := os.Mkdir(filepath.Join(set.HostsDir, "some.example"), 0o755); err != nil {
				t.Fatal(err)
			}
			empty := options(t, d)
			empty.HostsDir = t.TempDir()
			itself := name != "debian" // whose containerd is too old
			for what, c := range map[string]struct {
				images.Options
				snapshotter, proxy string
				itself             bool
			}{
				"plain": {options(t, d), "", "", itself}, "an empty directory of settings": {empty, "", "", itself}, "settings of a registry": {set, "", "", false},
				"another snapshotter": {options(t, d), "native", "", false}, "a proxy": {options(t, d), "", "http://127.0.0.1:1", false},
			} {
				if name != "embedded" && c.HostsDir+c.snapshotter+c.proxy != "" {
					continue // podrun's own, whatever containerd is
				}
				t.Run(what, func(t *testing.T) {
					t.Setenv("NO_PROXY", "127.0.0.1")
					t.Setenv("HTTPS_PROXY", c.proxy)
					s := connectWith(t, d, c.snapshotter, c.Options)
					h, _ := newHub(t, d, s)
					var mu sync.Mutex
					mine := map[bool]bool{}
					h.misbehave(func(_ http.ResponseWriter, q *http.Request) bool {
						mu.Lock()
						defer mu.Unlock()
						mine[ours(t, q.RemoteAddr)] = true
						return false
					})
					_, err := s.Pull(t.Context(), h.ref)
					mu.Lock()
					defer mu.Unlock()
					if err != nil || len(mine) != 1 || !mine[!c.itself] {
						t.Errorf("%v; podrun's connections: %v", err, mine)
					}
					if _, err := s.PruneImages(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// TestRefusedOnce checks that podrun does not repeat a request that a registry has refused to
// containerd.
func TestRefusedOnce(t *testing.T) {
	d := daemontest.Embedded(t)
	itself, own := options(t, d), options(t, d)
	own.HostsDir = t.TempDir()
	if err := os.Mkdir(filepath.Join(own.HostsDir, "some.example"), 0o755); err != nil {
		t.Fatal(err)
	}
	stores := []*images.Store{connectWith(t, d, "", own), connectWith(t, d, "", itself)}
	h, _ := newHub(t, d, stores[0])
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusInternalServerError} {
		var asked [2]int
		for n, s := range stores {
			var mu sync.Mutex
			h.misbehave(func(w http.ResponseWriter, _ *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				asked[n]++
				http.Error(w, `{"errors":[{"code":"X","message":"not for you"}]}`, code)
				return true
			})
			if text := failing(t, s, h.ref); strings.Count(text, "not for you") > 1 {
				t.Errorf("%d: told %q", code, text)
			}
		}
		if asked[0] == 0 || asked[1] != asked[0] {
			t.Errorf("%d: podrun asked %d times, containerd and podrun together %d times", code, asked[0], asked[1])
		}
	}
}

// TestAllSpoilt checks that one pull replaces all corrupt partial contents of an image, not only
// one of them.
func TestAllSpoilt(t *testing.T) {
	d := daemontest.Embedded(t)
	s := connect(t, d)
	h, digest := newHub(t, d, s)
	var spoil sync.Once
	for _, healing := range []bool{false, true} {
		h.misbehave(func(w http.ResponseWriter, q *http.Request) bool {
			if q.Method != http.MethodGet || !strings.Contains(q.URL.Path, "/blobs/") {
				return false
			}
			answer := httptest.NewRecorder()
			h.inner.ServeHTTP(answer, q)
			body := answer.Body.Bytes()
			switch {
			case len(body) < 100_000 && !healing: // the config, which comes first
				fmt.Fprint(w, "garbage")
				return true
			case len(body) > 100_000:
				spoil.Do(func() { body[len(body)/2] ^= 1 })
				_, _ = w.Write(body)
				return true
			}
			return false
		})
		if !healing {
			failing(t, s, h.ref)
		} else if got, err := s.Pull(t.Context(), h.ref); err != nil || !strings.HasSuffix(got.ID, digest) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// TestPullOfABigConfig checks that an image whose config is too big is refused, whoever fetches it.
func TestPullOfABigConfig(t *testing.T) {
	d := daemontest.Embedded(t)
	own := options(t, d)
	own.HostsDir = t.TempDir()
	if err := os.Mkdir(filepath.Join(own.HostsDir, "some.example"), 0o755); err != nil {
		t.Fatal(err)
	}
	for what, o := range map[string]images.Options{"containerd": options(t, d), "podrun": own} {
		t.Run(what, func(t *testing.T) {
			s := connectWith(t, d, "", o)
			h, _ := newHub(t, d, s)
			archive, err := os.Open(daemontest.Archive(t, "big:1", testimage.Env("A="+strings.Repeat("x", 5<<20))))
			if err != nil {
				t.Fatal(err)
			}
			defer archive.Close()
			ctx, c := d.Client(t)
			found, err := c.Import(ctx, archive) // not by podrun
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			ref := strings.TrimSuffix(h.ref, "busybox:1") + "big:1"
			if err := c.Push(ctx, ref, found[0].Target); err != nil {
				t.Fatal(err)
			}
			if _, err := s.RemoveImage(t.Context(), "big:1", false); err != nil {
				t.Fatal(err)
			}
			if text := failing(t, s, ref); !strings.Contains(text, "its config is too big: it has 52") {
				t.Error(text)
			}
			if _, err := s.DropFetched(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := s.PruneImages(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
