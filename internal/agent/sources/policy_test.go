package sources

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/podsecurity"
)

// tooMuch is a manifest that requests more than the policy levels of these tests allow.
const tooMuch = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {hostPID: true, containers: [{name: c, image: i}]}\n"

func baseline(t *testing.T) *podsecurity.Policy {
	t.Helper()
	policy, err := podsecurity.New("baseline")
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// TestEveryWayInIsJudged: the policy level applies to manifests from every kind of source.
func TestEveryWayInIsJudged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	if err := os.WriteFile(file, []byte(tooMuch), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tooMuch) }))
	defer server.Close()
	// A podrun without a level kept what this one served; then it went away.
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tooMuch) }))
	kept := t.TempDir()
	of := func(s Options, cache string) Opener {
		s.FileCheckFrequency, s.HTTPCheckFrequency = time.Hour, time.Hour
		return Opener{Options: s, CacheDir: cache, NodeName: "n", Stdin: strings.NewReader(tooMuch), Log: slog.New(slog.DiscardHandler)}
	}
	read := func(s Options, cache string) manifest.Desired {
		t.Helper()
		all, err := of(s, cache).Open()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d, err := of(s, cache).First(ctx, all)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := read(Options{URL: gone.URL}, kept); len(d.Pods) != 1 {
		t.Fatalf("without a level: %+v", d)
	}
	gone.Close()
	for name, c := range map[string]struct {
		sources Options
		cache   string
		want    string
	}{
		"a file":              {Options{Manifests: []string{file}}, "", "--pod-security baseline"},
		"a directory":         {Options{Manifests: []string{dir}}, "", "--pod-security baseline"},
		"the default":         {Options{Manifests: []string{dir}, Default: true}, "", "--pod-security baseline"},
		"standard input":      {Options{Manifests: []string{manifest.Stdin}}, "", "--pod-security baseline"},
		"a URL":               {Options{URL: server.URL}, "", "--pod-security baseline"},
		"what a URL had once": {Options{URL: gone.URL}, kept, "connection refused"},
	} {
		if d := read(c.sources, c.cache); len(d.Pods) != 1 {
			t.Errorf("%s, without a level: %+v", name, d)
		}
		c.sources.Policy = baseline(t)
		d := read(c.sources, c.cache)
		var why []string
		for _, p := range d.Problems {
			why = append(why, p.Err.Error())
		}
		if len(d.Pods) != 0 || !strings.Contains(strings.Join(why, "\n"), c.want) {
			t.Errorf("%s: pods %v, problems %q, want %q", name, d.Pods, why, c.want)
		}
	}
}

// TestEditsAreJudged: an edit that exceeds the policy level does not change the desired pod.
func TestEditsAreJudged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "web.yaml")
	var text atomic.Value
	put := func(s string) {
		text.Store(s)
		if err := os.WriteFile(file+".new", []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put(webPod)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text.Load().(string)) }))
	defer server.Close()
	for name, s := range map[string]Options{"a file": {Manifests: []string{file}}, "a URL": {URL: server.URL}} {
		put(webPod)
		s.Policy, s.FileCheckFrequency, s.HTTPCheckFrequency = baseline(t), 10*time.Millisecond, 10*time.Millisecond
		o := Opener{Options: s, NodeName: "n", Log: slog.New(slog.DiscardHandler)}
		all, err := o.Open()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out, done := make(chan manifest.Desired), make(chan bool)
		go func() {
			defer close(done)
			o.Run(ctx, all, out, func(who string, err error) { t.Errorf("%s: %v", who, err) })
		}()
		edited, refused := false, false
		for !refused && ctx.Err() == nil {
			var d manifest.Desired
			select {
			case d = <-out:
			case <-ctx.Done():
				continue
			}
			for _, p := range d.Pods {
				if p.Spec.HostPID {
					t.Errorf("%s: %+v is wanted", name, p.Spec)
					cancel()
				}
				if !edited {
					edited = true
					put(tooMuch)
				}
			}
			for _, p := range d.Problems {
				refused = refused || len(d.Pods) == 1 && strings.Contains(p.Err.Error(), "--pod-security baseline")
			}
		}
		cancel()
		<-done
		if !edited || !refused {
			t.Errorf("%s: edited %v, refused %v", name, edited, refused)
		}
	}
}
