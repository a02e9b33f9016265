package http

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/test"
)

const testURL = "http://pods.example/node1.yaml"

// pipes listens for connections that are pipes, so that servers can be had in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", os.ErrNotExist)}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// world is a source and its server in virtual time. It notes what the server was asked.
type world struct {
	t    *testing.T
	src  *Source
	log  *test.Buffer
	out  chan manifest.Snapshot
	stop context.CancelFunc
	done chan error

	mu       sync.Mutex
	handle   http.HandlerFunc
	requests []request
	conns    int
}

// request is when the server was asked, and how.
type request struct {
	at     time.Time
	header http.Header
}

// newWorld does not run the source yet.
func newWorld(t *testing.T, o Options, handle http.HandlerFunc) *world {
	t.Helper()
	w := &world{t: t, log: &test.Buffer{}, handle: handle, out: make(chan manifest.Snapshot, 100), done: make(chan error, 1)}
	if o.URL == "" {
		o.URL = testURL
	}
	o.NodeName = "node1"
	o.Log = slog.New(slog.NewTextHandler(w.log, nil))
	src, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.src = src
	listener := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	src.client.dialer.made = &http.Transport{DialContext: listener.dial, IdleConnTimeout: src.client.dialer.idle}
	server := &http.Server{Handler: w, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			w.mu.Lock()
			w.conns++
			w.mu.Unlock()
		}
	}}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		src.client.dialer.close()
		_ = server.Close()
		<-served
	})
	return w
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.requests = append(w.requests, request{time.Now(), r.Header.Clone()})
	handle := w.handle
	w.mu.Unlock()
	handle(rw, r)
}

func (w *world) set(handle http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handle = handle
}

// asked are the requests so far, and the number of connections.
func (w *world) asked() ([]request, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests), w.conns
}

func (w *world) start() *world {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.done <- w.src.Run(ctx, w.out) }()
	w.t.Cleanup(w.end)
	synctest.Wait()
	return w
}

func (w *world) end() {
	w.stop()
	if err := <-w.done; err != nil {
		w.t.Error(err)
	}
	w.done <- nil
}

// after lets time pass and returns the newest snapshot of it; none if there was none.
func (w *world) after(d time.Duration) (manifest.Snapshot, bool) {
	time.Sleep(d)
	synctest.Wait()
	var last manifest.Snapshot
	some := false
	for {
		select {
		case last = <-w.out:
			some = true
		default:
			return last, some
		}
	}
}

// expect lets time pass and returns the newest snapshot, of which there must be one.
func (w *world) expect(d time.Duration) manifest.Snapshot {
	w.t.Helper()
	s, some := w.after(d)
	if !some {
		w.t.Fatalf("no snapshot; log:\n%s", w.log)
	}
	return s
}

func podText(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: %q}]}\n", name, image)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func serves(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

// servesIfNew is a server that knows conditional requests.
func servesIfNew(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tag := `"` + manifest.Digest([]byte(text)) + `"`
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write([]byte(text))
	}
}

func answers(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = w.Write([]byte("because")) }
}

// sendsRaw answers with these bytes and closes the connection.
func sendsRaw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = c.Write([]byte(text))
		_ = c.Close()
	}
}

func namesOf(pods []*v1.Pod) string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

func problemText(s manifest.Snapshot) string {
	var all []string
	for _, p := range s.Problems {
		if p.Origin.Source != manifest.SourceHTTP || p.Origin.Path != s.Source {
			all = append(all, "WRONG ORIGIN")
		}
		all = append(all, p.Err.Error())
	}
	return strings.Join(all, "\n")
}

// badAnswers are all that must not touch what runs.
func badAnswers() map[string]struct {
	handle http.HandlerFunc
	want   string
} {
	web := podText("web", "i:1")
	zipped := &bytes.Buffer{}
	z := gzip.NewWriter(zipped)
	_, _ = z.Write([]byte(web))
	_ = z.Close()
	big := strings.Repeat("# a comment that goes on and on and on and on\n", 11<<20/46)
	hang := func(r *http.Request) { <-r.Context().Done() }
	return map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"401":                {answers(401), "answered 401 Unauthorized: check the credentials"},
		"403":                {answers(403), "answered 403 Forbidden: check the credentials"},
		"404":                {answers(404), "answered 404 Not Found"},
		"429":                {answers(429), "answered 429 Too Many Requests"},
		"500":                {answers(500), "answered 500 Internal Server Error"},
		"502":                {answers(502), "answered 502 Bad Gateway"},
		"503":                {answers(503), "answered 503 Service Unavailable"},
		"599":                {answers(599), "answered 599"},
		"204":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "answered 204 No Content"},
		"206":                {answers(206), "answered 206 Partial Content"},
		"301 to nowhere":     {answers(301), "answered 301 Moved Permanently"},
		"redirects in a row": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", 302) }, "redirects more than 10 times"},
		"empty":              {serves(""), "the answer is empty"},
		"white space":        {serves("\n \n"), "the answer is empty"},
		"comments":           {serves("# nothing\n---\n"), "the answer is empty"},
		"null":               {serves("null"), "the answer is empty"},
		"garbage":            {serves("\x00\xff\xfe"), "is not UTF-8 text"},
		"web page":           {serves("<!DOCTYPE html><html><body>Log in</body></html>"), "is not an object"},
		"another kind":       {serves("apiVersion: v1\nkind: Nod\nmetadata: {name: a}\n"), `"Nod"`},
		"one bad pod":        {serves(web + "---\n" + podText("Bad Name", "i")), "metadata.name"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(web))
		}, "the answer was cut off"},
		"cut off in chunks": {sendsRaw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nkind:\r\n"), "the answer was cut off"},
		"cut off in gzip": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped.Bytes()[:zipped.Len()-9])
		}, "the answer was cut off"},
		"cut off in the header": {sendsRaw("HTTP/1.1 200 OK\r\nContent-"), "malformed MIME header"},
		"no answer":             {sendsRaw(""), "the connection was closed without an answer"},
		"no HTTP":               {sendsRaw("220 mail.example ESMTP\r\n"), "malformed HTTP"},
		"11 MiB": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(big)))
			_, _ = w.Write([]byte(big))
		}, "has more than 10 MiB"},
		"11 MiB in chunks": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(big)) }, "has more than 10 MiB"},
		"slow header":      {func(_ http.ResponseWriter, r *http.Request) { hang(r) }, "no whole answer within 10s"},
		"slow body": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(web))
			_ = http.NewResponseController(w).Flush()
			hang(r)
		}, "no whole answer within 10s"},
		"304 unasked": {answers(304), "304 Not Modified though it was not asked"},
	}
}

func TestHTTPBadAnswersKeepTheSet(t *testing.T) {
	t.Parallel()
	good := podText("web", "i:1") + "---\n" + podText("db", "i:1")
	for name, c := range badAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{}, serves(good)).start()
				first := w.expect(0)
				if namesOf(first.Pods) != "web-node1 db-node1" || len(first.Problems) != 0 || first.Err != nil {
					t.Fatalf("at first: %+v", first)
				}
				w.set(c.handle)
				bad := w.expect(33 * time.Second)
				if bad.Err != nil || !strings.Contains(problemText(bad), c.want) || !strings.HasPrefix(problemText(bad), testURL+":") {
					t.Errorf("problems %q, error %v, want %q", problemText(bad), bad.Err, c.want)
				}
				if bad.Problems[0].Blind {
					t.Error("what the server wanted last is known")
				}
				if again, some := w.after(20 * time.Minute); some {
					t.Errorf("it is said again: %s", problemText(again))
				}
				w.set(serves(good))
				mended := w.expect(4 * time.Minute)
				if len(mended.Problems) != 0 {
					t.Errorf("mended, but %s", problemText(mended))
				}
				for _, s := range []manifest.Snapshot{bad, mended} {
					if len(s.Pods) != 2 || s.Pods[0] != first.Pods[0] || s.Pods[1] != first.Pods[1] {
						t.Errorf("pods %s", namesOf(s.Pods))
					}
				}
				if n := strings.Count(w.log.String(), "can be read again"); n != 1 {
					t.Errorf("recovery logged %d times:\n%s", n, w.log)
				}
			})
		})
	}
}

// A source that has had no good answer has not spoken, so that nothing is removed because of it.
func TestHTTPBadAnswersAtFirst(t *testing.T) {
	t.Parallel()
	for name, c := range badAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{}, c.handle).start()
				bad := w.expect(11 * time.Second)
				if bad.Err == nil || len(bad.Pods) != 0 || !strings.Contains(bad.Err.Error(), c.want) || bad.Source != testURL {
					t.Errorf("%+v, want %q", bad, c.want)
				}
				w.set(serves(podText("web", "i:1")))
				if good := w.expect(90 * time.Second); good.Err != nil || namesOf(good.Pods) != "web-node1" || len(good.Problems) != 0 {
					t.Errorf("mended: %+v", good)
				}
			})
		})
	}
}

func TestHTTPForms(t *testing.T) {
	t.Parallel()
	item := `{"metadata":{"name":"%s"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	pod := `{"apiVersion":"v1","kind":"Pod",` + item[1:]
	for text, want := range map[string]string{
		podText("a", "i"): "a-node1",
		podText("a", "i") + "---\n" + podText("b", "i"): "a-node1 b-node1",
		fmt.Sprintf(pod, "a"):                           "a-node1",
		fmt.Sprintf(`{"apiVersion":"v1","kind":"PodList","items":[`+item+","+item+`]}`, "a", "b"): "a-node1 b-node1",
		fmt.Sprintf(`{"apiVersion":"v1","kind":"List","items":[`+pod+`]}`, "a"):                   "a-node1",
		`{"apiVersion":"v1","kind":"List","items":[]}`:                                            "",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newWorld(t, Options{}, serves(text)).start().expect(0)
			if namesOf(s.Pods) != want || s.Err != nil || len(s.Problems) != 0 {
				t.Errorf("%s\n%+v", text, s)
			}
		})
	}
}

func TestHTTPAsksForChangesOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{}, servesIfNew(podText("web", "i:1"))).start()
		first := w.expect(0)
		if _, some := w.after(90 * time.Second); some {
			t.Error("something is said though nothing changed")
		}
		tag := `"` + manifest.Digest([]byte(podText("web", "i:1"))) + `"`
		asked, conns := w.asked()
		if len(asked) < 4 || asked[0].header.Get("If-None-Match") != "" || asked[3].header.Get("If-None-Match") != tag {
			t.Errorf("%d requests, %v", len(asked), asked)
		}
		if conns != 1 {
			t.Errorf("%d connections", conns)
		}
		w.set(servesIfNew("# a comment\n" + podText("web", "i:1") + "---\n" + podText("db", "i:1")))
		second := w.expect(23 * time.Second)
		if namesOf(second.Pods) != "web-node1 db-node1" || second.Pods[0] != first.Pods[0] {
			t.Errorf("pods %s", namesOf(second.Pods))
		}
		w.set(answers(500))
		w.expect(23 * time.Second)
		w.set(servesIfNew("# a comment\n" + podText("web", "i:1") + "---\n" + podText("db", "i:1")))
		if third := w.expect(45 * time.Second); len(third.Problems) != 0 || len(third.Pods) != 2 {
			t.Errorf("after a failure, 304: %+v", third)
		}
		w.set(serves(podText("db", "i:1")))
		if last := w.expect(23 * time.Second); namesOf(last.Pods) != "db-node1" || last.Pods[0] != second.Pods[1] {
			t.Errorf("a pod removed: %s", namesOf(last.Pods))
		}
	})
}

// What was changed in the second that it was served in can change again with the same date.
func TestHTTPDateOfThisSecondIsNoMark(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text, changed := podText("web", "i:1"), time.Now()
		serve := func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "a.yaml", changed, strings.NewReader(text))
		}
		w := newWorld(t, Options{}, serve).start()
		w.expect(0)
		w.set(func(rw http.ResponseWriter, r *http.Request) {
			http.ServeContent(rw, r, "a.yaml", changed, strings.NewReader(podText("web", "i:2")))
		})
		if s := w.expect(23 * time.Second); s.Pods[0].Spec.Containers[0].Image != "i:2" {
			t.Errorf("image %s", s.Pods[0].Spec.Containers[0].Image)
		}
		w.after(23 * time.Second)
		asked, _ := w.asked()
		if got := asked[2].header.Get("If-Modified-Since"); got != changed.UTC().Format(http.TimeFormat) {
			t.Errorf("If-Modified-Since %q", got)
		}
	})
}

func TestHTTPGzip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				t.Error("gzip is not asked for")
			}
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write([]byte(podText("web", "i:1")))
			_ = z.Close()
		}).start()
		if s := w.expect(0); namesOf(s.Pods) != "web-node1" {
			t.Errorf("%+v", s)
		}
	})
}

// An answer that ends where the connection does may lack its second half.
func TestHTTPAnswerWithoutLengthMustComeTwice(t *testing.T) {
	t.Parallel()
	head := "HTTP/1.0 200 OK\r\n\r\n"
	one, two := podText("web", "i:1"), podText("web", "i:1")+"---\n"+podText("db", "i:1")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{}, sendsRaw(head+two)).start()
		s := w.expect(0)
		if asked, _ := w.asked(); namesOf(s.Pods) != "web-node1 db-node1" || len(asked) != 2 {
			t.Errorf("%d requests, %+v", len(asked), s)
		}
		_, some := w.after(23 * time.Second)
		if asked, _ := w.asked(); some || len(asked) != 3 {
			t.Errorf("what is known is asked for once more, %d requests", len(asked))
		}
		cut := true
		w.set(func(rw http.ResponseWriter, r *http.Request) {
			text := two
			if cut {
				text = one
			}
			cut = !cut
			sendsRaw(head+text)(rw, r)
		})
		s = w.expect(23 * time.Second)
		if namesOf(s.Pods) != "web-node1 db-node1" || !strings.Contains(problemText(s), "without a length") {
			t.Errorf("%+v", s)
		}
	})
}

func TestHTTPRunEndsInTheMiddleOfARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }).start()
		before := time.Now()
		w.end()
		if took := time.Since(before); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}
