package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzRequest sends arbitrary bytes to the handler of the socket and to those of --listen. A client
// without permission gets no data, only GET and HEAD are answered, and each response is bounded and
// has the headers that restrict what a browser may do with it.
func FuzzRequest(f *testing.F) {
	token := filepath.Join(f.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hunter2hunter2\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	for _, r := range []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HEAD /live HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n", "POST /pods HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /healthz?verbose&exclude=a HTTP/1.1\r\nHost: [::1]\r\n\r\n", "GET /readyz HTTP/1.0\r\n\r\n", "GET /pods HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"GET /containerLogs/default/web-n/main?tailLines=5&follow=true&sinceSeconds=3&limitBytes=7 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /containerLogs/default/web-n/none?sinceTime=2026-01-02T15:04:05Z HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /pod/default/web-n?container=main&previous=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hunter2hunter2\r\n\r\n",
		"GET /pod/default/%3Cscript%3E HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic OmgK\r\n\r\n", "GET /../pods HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /stats/summary?only_cpu_and_memory=maybe HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer\r\n\r\n",
		"GET /pod/default/web-n/live HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		f.Add([]byte(r))
	}
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-n", UID: "u1"}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "image:1"}}
	h := handler(fakeNode{pods: []v1.Pod{p}})
	f.Fuzz(func(t *testing.T, raw []byte) {
		for name, guarded := range map[string]http.Handler{
			"socket": h, "loopback": ListenOptions{}.guard(h), "token": ListenOptions{TokenFile: token}.guard(h),
		} {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
			if err != nil {
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // answers without end are begun, and end
			w := httptest.NewRecorder()
			guarded.ServeHTTP(w, r.WithContext(ctx))
			checkAnswer(t, name, r, w)
		}
	})
}

func checkAnswer(t *testing.T, name string, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code < 200 || w.Code >= 300 && w.Code < 301 || w.Code == http.StatusInternalServerError || w.Code > 503 {
		t.Errorf("%s: %s %s: %d: %s", name, r.Method, r.URL, w.Code, w.Body)
	}
	if w.Body.Len() > 256<<10 {
		t.Errorf("%s: an answer of %d bytes", name, w.Body.Len())
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !read && w.Code < 400 {
		t.Errorf("%s: %s is answered: %d", name, r.Method, w.Code)
	}
	passed := w.Header().Get("Content-Security-Policy") != ""
	switch name {
	case "socket":
		if !passed || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: headers %v", r.Method, r.URL, w.Header())
		}
	case "token":
		if passed && !strings.Contains(strings.Join(r.Header["Authorization"], "\n"), "hunter2hunter2") {
			if _, password, _ := r.BasicAuth(); password != "hunter2hunter2" {
				t.Errorf("let in: %v", r.Header)
			}
		}
	case "loopback":
		host := strings.ToLower(r.Host)
		if passed && !strings.HasPrefix(host, "localhost") && !strings.HasPrefix(strings.Trim(host, "["), "127.") && !strings.Contains(host, ":") {
			t.Errorf("let in under the name %q", r.Host)
		}
	}
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) && r.Method == http.MethodGet {
		t.Errorf("%s: no JSON: %s", r.URL, w.Body)
	}
	if strings.Contains(w.Header().Get("Content-Type"), "html") && strings.Contains(w.Body.String(), "<script>alert") {
		t.Errorf("%s: text becomes a script", r.URL)
	}
}

// FuzzLogRequest parses the parameters of a log request. A request that is accepted is possible: no
// number is negative, no time is given twice, and a previous run is not followed.
func FuzzLogRequest(f *testing.F) {
	for _, q := range []string{"", "follow=1&tailLines=3", "tail=all", "tailLines=-1", "sinceSeconds=2147483648", "sinceTime=9999-99-99T00:00:00Z",
		"sinceSeconds=1&sinceTime=2026-01-02T15:04:05Z", "limitBytes=9223372036854775807", "follow=true&previous=true", "tail=1&tailLines=2;x=%zz"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := &http.Request{URL: mustURL(query)}
		now := time.Unix(1_800_000_000, 0)
		var l LogRequest
		limit, err := l.parse(r.URL.Query(), now)
		if err != nil {
			return
		}
		if limit < -1 || limit == 0 || l.Tail != nil && *l.Tail < 0 || l.Follow && l.Previous {
			t.Errorf("%q is %+v with limit %d", query, l, limit)
		}
		q := r.URL.Query()
		if !slices.ContainsFunc([]string{"sinceSeconds", "sinceTime"}, q.Has) && !l.Since.IsZero() {
			t.Errorf("%q has a time of nobody's: %v", query, l.Since)
		}
		if q.Get("sinceSeconds") != "" && !l.Since.Before(now) {
			t.Errorf("%q begins in the future: %v", query, l.Since)
		}
	})
}

func mustURL(query string) *url.URL {
	return &url.URL{Path: "/containerLogs/default/web-n/main", RawQuery: query}
}
