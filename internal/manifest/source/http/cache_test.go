package http

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/manifest"
)

func TestHTTPCache(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	secret := "http://me:hunter2@pods.example/a.yaml?token=hunter3"
	shown := "http://***@pods.example/a.yaml?token=***"
	text := podText("web", "i:1")
	down := sendsRaw("")
	var first, second manifest.Snapshot
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{URL: secret, CacheDir: dir}, servesIfNew(text)).start()
		first = w.expect(0)
	})
	checkCacheFile(t, dir)

	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		w := newWorld(t, Options{URL: secret, CacheDir: dir}, down).start()
		second = w.expect(0)
		if second.Err != nil || len(second.Pods) != 1 || second.Pods[0].UID != first.Pods[0].UID {
			t.Fatalf("with the server down: %+v", second)
		}
		if manifest.OriginOf(second.Pods[0]).Path != shown || second.Pods[0].Annotations[manifest.AnnotationSeen] != first.Pods[0].Annotations[manifest.AnnotationSeen] {
			t.Errorf("annotations %v", second.Pods[0].Annotations)
		}
		if !second.Problems[0].Blind {
			t.Error("what the server wanted since the cache was written is not known")
		}
		if got := problemText(second); !strings.Contains(got, "from the cache") || !strings.HasPrefix(got, shown+": the connection was closed") {
			t.Errorf("problem %q", got)
		}
		w.set(serves("nonsense"))
		if s := w.expect(3 * time.Second); len(s.Pods) != 1 || !strings.Contains(problemText(s), "is not an object") {
			t.Errorf("with nonsense: %+v", s)
		}
		w.set(servesIfNew(text))
		if s := w.expect(23 * time.Second); len(s.Problems) != 0 || s.Pods[0] != second.Pods[0] {
			t.Errorf("with the server up: %+v", s)
		}
	})

	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{URL: secret, CacheDir: dir}, servesIfNew(text)).start()
		if s := w.expect(0); len(s.Problems) != 0 || len(s.Pods) != 1 || s.Pods[0].UID != first.Pods[0].UID {
			t.Errorf("304 at first: %+v", s)
		}
		if asked, _ := w.asked(); asked[0].header.Get("If-None-Match") == "" {
			t.Error("the first request is not conditional")
		}
	})

	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{URL: testURL, CacheDir: dir}, down).start()
		if s := w.expect(0); s.Err == nil || len(s.Pods) != 0 {
			t.Errorf("another URL's cache is used: %+v", s)
		}
	})
}

func checkCacheFile(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	path := filepath.Join(dir, entries[0].Name())
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 || filepath.Ext(path) != ".json" {
		t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
	}
	data, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(data), "hunter") || strings.Contains(string(data), "pods.example") {
		t.Errorf("%s %v", data, err)
	}
}

// A cache that cannot be used is as none: above all, the server is not asked for changes to it.
func TestHTTPCacheThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	key := manifest.Digest([]byte(testURL))
	for name, text := range map[string]string{
		"cut off":     `{"url":"` + key + `","bo`,
		"another URL": `{"url":"other","etag":"\"a\"","body":""}`,
		"no pods":     `{"url":"` + key + `","etag":"\"a\"","at":"` + key + `","body":"bm9uc2Vuc2U="}`,
	} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, key+".json"), text)
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{CacheDir: dir}, answers(500)).start()
			s := w.expect(0)
			if asked, _ := w.asked(); s.Err == nil || asked[0].header.Get("If-None-Match") != "" {
				t.Errorf("%s: %+v", name, s)
			}
			if !strings.Contains(w.log.String(), "cached manifests cannot be used") {
				t.Errorf("%s: %s", name, w.log)
			}
			w.set(serves(podText("web", "i:1")))
			if s := w.expect(23 * time.Second); namesOf(s.Pods) != "web-node1" {
				t.Errorf("%s: %+v", name, s)
			}
		})
		var cached struct{ Body []byte }
		mended, err := os.ReadFile(filepath.Join(dir, key+".json"))
		if err := errors.Join(err, json.Unmarshal(mended, &cached)); err != nil || string(cached.Body) != podText("web", "i:1") {
			t.Errorf("%s: not mended: %s, %v", name, mended, err)
		}
	}
}

func TestHTTPCacheThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{CacheDir: file}, serves(podText("web", "i:1"))).start()
		if s := w.expect(0); namesOf(s.Pods) != "web-node1" || !strings.Contains(w.log.String(), "manifests cannot be cached") {
			t.Errorf("%+v\n%s", s, w.log)
		}
	})
}
