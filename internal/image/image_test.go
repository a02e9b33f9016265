package image

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/trace"
)

func TestCredentials(t *testing.T) {
	auth := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	bin := t.TempDir()
	helper := "#!/bin/sh\nread server\ncase $server in\nhelped.example) echo '{\"Username\":\"h\",\"Secret\":\"elp\"}';;\n" +
		"token.example) echo '{\"Username\":\"<token>\",\"Secret\":\"t0k\"}';;\nbroken.example) echo no keyring; exit 1;;\n" +
		"*) echo 'credentials not found in native keychain'; exit 1;;\nesac\n"
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-test"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	file := filepath.Join(t.TempDir(), "config.json")
	text := fmt.Sprintf(`{"auths":{"a.example":{"auth":%q},"a.example/team":{"auth":%q},"https://b.example/v1/":{"username":"b","password":"c:d"},
		"t.example":{"identitytoken":"it"},"https://index.docker.io/v1/":{"auth":%q},"bad.example":{"auth":"!"},"worse.example":{"auth":%q},"empty.example":{}},
		"credHelpers":{"helped.example":"test","token.example":"test","broken.example":"test","missing.example":"none","stranger.example":"test","empty.example":"test"}}`,
		auth("u:p"), auth("team:secret:x"), auth("hub:pw"), auth("nocolon"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]string{
		"a.example/x/y": "u p", "a.example/team/y": "team secret:x", "a.example/teams": "u p", "b.example/x": "b c:d",
		"t.example/x": " it", "registry-1.docker.io/library/busybox": "hub pw", "helped.example/x": "h elp", "token.example/x": " t0k",
		"stranger.example/x": " ", "empty.example/x": " ", "other.example/x": " ",
		"bad.example/x": "not in base64", "worse.example/x": "not user:password", "broken.example/x": "no keyring", "missing.example/x": "docker-credential-none",
	} {
		host, repository, _ := strings.Cut(place, "/")
		user, secret, err := NewKeyring(nil, Credentials{Path: file}, repository).For(t.Context(), host)
		if got := user + " " + secret; err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %s", place, got, err, want)
		}
	}
	missing := Credentials{Path: file + ".none"}
	if _, _, err := NewKeyring(nil, missing, "x").For(t.Context(), "a.example"); err == nil {
		t.Error("a file that was named and is not there is no error")
	}
	missing.Optional = true
	for _, c := range []Credentials{missing, {}} {
		if user, secret, err := NewKeyring(nil, c, "x").For(t.Context(), "a.example"); user+secret != "" || err != nil {
			t.Errorf("%+v: %q %q %v", c, user, secret, err)
		}
	}
	if err := os.WriteFile(file, []byte(`{"auths": "hunter2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := NewKeyring(nil, Credentials{Path: file}, "x").For(t.Context(), "a.example"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}

// TestPullGroup: several callers that need an image cause one pull; if the caller that pulls gives
// up, another one continues.
func TestPullGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f PullGroup
		var mu sync.Mutex
		pulls := 0
		arrive, layer := make(chan error), make(chan string)
		pull := func(ctx context.Context, m *Meter) (pod.Image, error) {
			m.Expect("layer", 7)
			mu.Lock()
			pulls++
			mu.Unlock()
			for {
				select {
				case one := <-layer:
					m.Done(one)
				case err := <-arrive:
					return pod.Image{Name: "a"}, err
				case <-ctx.Done():
					return pod.Image{}, ctx.Err()
				}
			}
		}
		results := make(chan error, 10)
		fetched := 0
		first, giveUp := context.WithCancel(t.Context())
		want := func(ctx context.Context) {
			go func() {
				ctx := trace.With(ctx, trace.Trace{Fetched: func(time.Time) {
					fetched++ // under the lock of the meter
				}})
				i, err := f.Pull(ctx, "a key", pull)
				if err == nil && i.Name != "a" {
					err = fmt.Errorf("image %+v", i)
				}
				results <- err
			}()
			synctest.Wait()
		}
		want(first)
		second, leave := context.WithCancel(t.Context())
		want(second)
		for range 8 {
			want(t.Context())
		}
		if pulls != 1 {
			t.Errorf("%d pulls", pulls)
		}
		if p, ok := f.Progress("a"); !ok || p.Total != 7 {
			t.Errorf("progress %+v, %t", p, ok)
		}
		if p, ok := f.Progress("b"); ok {
			t.Errorf("progress of nothing: %+v", p)
		}
		leave() // who waits may go without harm
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		giveUp()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if pulls != 2 {
			t.Errorf("%d pulls", pulls)
		}
		if fetched != 0 {
			t.Errorf("%d callers were told that all is fetched", fetched)
		}
		layer <- "layer"
		synctest.Wait()
		if fetched != 8 {
			t.Errorf("%d callers were told that all is fetched, want 8", fetched)
		}
		arrive <- nil
		for range 8 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		// All callers get the failure, and the next caller tries again.
		want(t.Context())
		want(t.Context())
		arrive <- errors.New("no such image")
		for range 2 {
			if err := <-results; err == nil || err.Error() != "no such image" {
				t.Error(err)
			}
		}
		want(t.Context())
		arrive <- nil
		if err := <-results; err != nil || pulls != 4 {
			t.Error(err, pulls)
		}
		if p, ok := f.Progress("a"); ok {
			t.Errorf("progress after the end: %+v", p)
		}
	})
}
