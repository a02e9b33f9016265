package http

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/manifest"
)

// newSource is a source that is asked by hand.
func newSource(t *testing.T, o Options) *Source {
	t.Helper()
	o.NodeName = "node1"
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.client.dialer.close)
	return h
}

// poll asks once.
func poll(h *Source) manifest.Snapshot {
	return pollAt(h, time.Now())
}

// pollAt asks once, as if at that time.
func pollAt(h *Source, at time.Time) manifest.Snapshot {
	h.record(h.ask(context.Background()), at)
	return h.last.Snapshot()
}

func serve(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s
}

func TestNewHTTPRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{URL: ""}, "must be http"},
		{Options{URL: "/etc/pods"}, "must be http"},
		{Options{URL: "ftp://me:hunter2@h/"}, "must be http"},
		{Options{URL: "http://"}, "must be http"},
		{Options{URL: "http://me:hunter2/@h/"}, "%-escapes"},
		{Options{URL: "http://me:hunter2@h:x/"}, "%-escapes"},
		{Options{URL: "https://h/", CertFile: "a"}, "both"},
		{Options{URL: "https://h/", KeyFile: "a"}, "both"},
		{Options{URL: "http://me:hunter2@h/", CAFile: "a"}, "https only"},
		{Options{URL: "http://h/", CheckFrequency: -1}, "negative"},
		{Options{URL: "http://h/", Headers: []string{"A: b", "hunter2"}}, "header 2: must be"},
		{Options{URL: "http://h/", Headers: []string{": hunter2"}}, "header 1: must be"},
		{Options{URL: "http://h/", Headers: []string{"A b: hunter2"}}, "header 1: must be"},
		{Options{URL: "http://h/", Headers: []string{"a: hunter2\r\nB: c"}}, "the value of A has control characters"},
		{Options{URL: "http://h/", Headers: []string{"accept-encoding: hunter2"}}, "Accept-Encoding is set by podrun"},
	} {
		_, err := New(c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

func TestHTTPHeaders(t *testing.T) {
	t.Parallel()
	var got *http.Request
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r; serves(podText("web", "i"))(w, r) })
	u := strings.Replace(s.URL, "://", "://me:h%40nter2@", 1) + "/a?b=c#d"
	h := newSource(t, Options{URL: u, Headers: []string{"X-One: 1", "x-one:2", "X-Empty:", "Host: pods.example", "X-Url: http://a:b"}})
	if snap := poll(h); snap.Err != nil {
		t.Fatal(snap.Err)
	}
	user, password, _ := got.BasicAuth()
	if user != "me" || password != "h@nter2" || fmt.Sprint(got.Header["X-One"]) != "[1 2]" || len(got.Header["X-Empty"]) != 1 ||
		got.Host != "pods.example" || got.Header.Get("X-Url") != "http://a:b" || got.Header.Get("User-Agent") != "podrun" || got.URL.String() != "/a?b=c" {
		t.Errorf("%s %s %v", got.Host, got.URL, got.Header)
	}
	h = newSource(t, Options{URL: u, Headers: []string{"Authorization: Bearer x", "User-Agent: me"}})
	if poll(h); got.Header.Get("Authorization") != "Bearer x" || got.Header.Get("User-Agent") != "me" {
		t.Errorf("%v", got.Header)
	}
}

// The UID is of the URL as it was given, everything that is shown of the masked one.
func TestHTTPSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	text := podText("web", "i")
	next := serves(text)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { next(w, r) })
	host := strings.TrimPrefix(s.URL, "http://")
	secret := "http://me:hunter2@" + host + "/a?token=hunter3"
	shown := "http://***@" + host + "/a?token=***"
	var log strings.Builder
	h := newSource(t, Options{URL: secret, Headers: []string{"X-Key: hunter4"}, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	first := poll(h)
	said := fmt.Sprintf("%+v", first)
	p := first.Pods[0]
	loaded, err := manifest.Load([]byte(text), manifest.LoadOptions{Origin: manifest.Origin{Source: manifest.SourceHTTP, Path: secret}, Kind: Kind, NodeName: "node1"})
	if err != nil || p.UID != loaded.Pods[0].UID || p.Annotations[manifest.AnnotationManifestHash] != loaded.Pods[0].Annotations[manifest.AnnotationManifestHash] {
		t.Errorf("UID %s, %v", p.UID, err)
	}
	if manifest.OriginOf(p) != (manifest.Origin{Source: manifest.SourceHTTP, Path: shown}) || h.Name() != shown {
		t.Errorf("origin %v, name %s", manifest.OriginOf(p), h.Name())
	}
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", to); w.WriteHeader(302) }
	}
	for i, bad := range []http.HandlerFunc{answers(500), serves("nonsense"), sendsRaw(""), redirect("http://me:hunter5@127.0.0.1:1/?key=hunter6"),
		redirect("ftp://me:hunter5@h/"), redirect("http://h:hunter5@x:y/?key=hunter6"), redirect("/b?token=hunter3")} {
		next = bad
		snap := pollAt(h, time.Now().Add(time.Duration(i)*time.Hour)) // late enough for each to be logged
		said += fmt.Sprintf("%+v", snap)
		if len(snap.Problems) == 0 && len(snap.Pods) == 0 {
			t.Error("not bad")
		}
	}
	s.Close()
	snap := pollAt(h, time.Now().Add(100*time.Hour))
	said += problemText(snap) + log.String()
	if !strings.Contains(problemText(snap), shown+": dial tcp") || strings.Count(log.String(), "level=WARN") < 7 {
		t.Errorf("%s\n%s", problemText(snap), log.String())
	}
	if i := strings.Index(said, "hunter"); i >= 0 {
		t.Errorf("…%s…", said[max(0, i-200):min(len(said), i+50)])
	}
}

func TestHTTPRedirects(t *testing.T) {
	t.Parallel()
	var seen []*http.Request
	note := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { seen = append(seen, r); next(w, r) }
	}
	good := servesIfNew(podText("web", "i"))
	other := serve(t, note(func(w http.ResponseWriter, r *http.Request) { good(w, r) }))
	home := serve(t, note(func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{"/same": "/good", "/far": other.URL + "/good", "/back": "/far?secret=s"}[r.URL.Path]
		if to == "" {
			good(w, r)
			return
		}
		http.Redirect(w, r, to, http.StatusFound)
	}))
	for _, c := range []struct {
		path string
		home []bool // for each request: does it get the headers?
	}{
		{"/good", []bool{true}}, {"/same", []bool{true, true}}, {"/far", []bool{true, false}}, {"/back", []bool{true, true, false}},
	} {
		u := strings.Replace(home.URL, "://", "://me:pass@", 1) + c.path
		h := newSource(t, Options{URL: u, Headers: []string{"X-Key: k", "Cookie: a=b"}})
		for round := range 2 {
			seen = nil
			if s := poll(h); s.Err != nil || len(s.Problems) != 0 || namesOf(s.Pods) != "web-node1" {
				t.Fatalf("%s: %+v", c.path, s)
			}
			if len(seen) != len(c.home) {
				t.Fatalf("%s: %d requests", c.path, len(seen))
			}
			for i, r := range seen {
				has := r.Header.Get("X-Key") == "k" && r.Header.Get("Cookie") == "a=b" && r.Header.Get("Authorization") != ""
				none := r.Header.Get("X-Key")+r.Header.Get("Cookie")+r.Header.Get("Authorization") == ""
				if c.home[i] && !has || !c.home[i] && !none || r.Header.Get("Referer") != "" {
					t.Errorf("%s: request %d to %s%s: %v", c.path, i, r.Host, r.URL, r.Header)
				}
				// Only the one that gave the mark is asked with it.
				if got, want := r.Header.Get("If-None-Match") != "", round == 1 && i == len(seen)-1; got != want {
					t.Errorf("%s: round %d, request %d: conditional %v", c.path, round, i, got)
				}
			}
		}
	}
}

func TestSameHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"http://h/a", "http://h:80/b", true}, {"http://h/", "https://h/", true}, {"https://h/", "https://h:443/", true},
		{"https://h/", "http://h/", false}, {"http://h/", "http://h:81/", false}, {"http://h:81/", "https://h/", false},
		{"http://h/", "http://a.h/", false}, {"http://h/", "http://i/", false},
	} {
		a, _ := url.Parse(c.a)
		b, _ := url.Parse(c.b)
		if got := sameHost(a, b); got != c.want {
			t.Errorf("%s %s: %v", c.a, c.b, got)
		}
	}
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// sign makes a certificate and its key, both in PEM.
func (a *authority) sign(name string, until time.Duration) (cert, key string) {
	a.t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(until),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	k := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder}))
}

func serveTLS(t *testing.T, a *authority, until time.Duration, config *tls.Config, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	pair, err := tls.X509KeyPair(pemPair(a.sign("server", until)))
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{pair}
	s := httptest.NewUnstartedServer(handle)
	s.EnableHTTP2 = true
	s.TLS = config
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func pemPair(cert, key string) ([]byte, []byte) { return []byte(cert), []byte(key) }

func TestHTTPSAuthorities(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	dir := t.TempDir()
	oursFile, theirsFile, nothing := filepath.Join(dir, "ours"), filepath.Join(dir, "theirs"), filepath.Join(dir, "nothing")
	put(t, oursFile, ours.pem())
	put(t, theirsFile, theirs.pem())
	put(t, nothing, "nothing\n")
	handle := serves(podText("web", "i"))
	good := serveTLS(t, ours, time.Hour, &tls.Config{}, handle)
	expired := serveTLS(t, ours, -time.Minute, &tls.Config{}, handle)
	old := serveTLS(t, ours, time.Hour, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, handle)
	plain := serve(t, handle)
	for _, c := range []struct{ name, url, ca, want string }{
		{"right", good.URL, oursFile, ""},
		{"wrong", good.URL, theirsFile, "the server's certificate is not signed by an authority in " + theirsFile},
		{"the system's", good.URL, "", "the server's certificate is not signed by a known authority"},
		{"missing", good.URL, filepath.Join(dir, "missing"), "reading CA file: " + dir},
		{"nothing in it", good.URL, nothing, "is not in PEM format"},
		{"another name", strings.Replace(good.URL, "127.0.0.1", "localhost", 1), oursFile, "the server's certificate is of another host"},
		{"expired", expired.URL, oursFile, "and this machine's clock is outside that period"},
		{"TLS 1.1", old.URL, oursFile, "protocol version"},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), oursFile, "server gave HTTP response to HTTPS client"},
	} {
		s := poll(newSource(t, Options{URL: c.url, CAFile: c.ca}))
		if c.want == "" && (s.Err != nil || len(s.Pods) != 1) || c.want != "" && (s.Err == nil || !strings.Contains(s.Err.Error(), c.want)) {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

func TestHTTPSIsNotLeft(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	file := filepath.Join(t.TempDir(), "ca")
	put(t, file, ca.pem())
	plain := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("asked without encryption") })
	s := serveTLS(t, ca, time.Hour, &tls.Config{}, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, plain.URL, http.StatusFound) })
	if snap := poll(newSource(t, Options{URL: s.URL, CAFile: file})); snap.Err == nil || !strings.Contains(snap.Err.Error(), "redirects from https to http://") {
		t.Errorf("%+v", snap)
	}
}

// TestHTTPSClientCertificateIsForTheURLsHost: another host that trusts whoever it likes is not told who asks.
func TestHTTPSClientCertificateIsForTheURLsHost(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	told := map[string]int{}
	count := func(name string, answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			told[name] = len(r.TLS.PeerCertificates)
			answer(w, r)
		}
	}
	away := serveTLS(t, ca, time.Hour, &tls.Config{ClientAuth: tls.RequestClientCert}, count("away", serves(podText("web", "i"))))
	home := serveTLS(t, ca, time.Hour, &tls.Config{ClientAuth: tls.RequestClientCert}, count("home", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, away.URL, http.StatusFound)
	}))
	dir := t.TempDir()
	o := Options{URL: home.URL, CAFile: dir + "/ca", CertFile: dir + "/cert", KeyFile: dir + "/key"}
	cert, key := ca.sign("one", time.Hour)
	put(t, o.CAFile, ca.pem())
	put(t, o.CertFile, cert)
	put(t, o.KeyFile, key)
	if snap := poll(newSource(t, o)); snap.Err != nil || len(snap.Pods) != 1 {
		t.Fatalf("%+v", snap)
	}
	if told["home"] != 1 || told["away"] != 0 {
		t.Errorf("certificates given: %v", told)
	}
}

func TestHTTPSClientCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	ca, first, second := newAuthority(t, "ca"), newAuthority(t, "first"), newAuthority(t, "second")
	pools := map[bool]*x509.CertPool{false: x509.NewCertPool(), true: x509.NewCertPool()}
	pools[false].AddCert(first.cert)
	pools[true].AddCert(second.cert)
	rotated, who := false, ""
	base := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}
	s := serveTLS(t, ca, time.Hour, base, func(w http.ResponseWriter, r *http.Request) {
		who = fmt.Sprint(r.TLS.PeerCertificates[0].Subject.CommonName, " ", r.ProtoMajor)
		serves(podText("web", "i"))(w, r)
	})
	config := s.TLS.Clone()
	s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := config.Clone()
		c.ClientCAs = pools[rotated]
		return c, nil
	}
	dir := t.TempDir()
	caFile, certFile, keyFile := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	put(t, caFile, ca.pem())
	h := newSource(t, Options{URL: s.URL, CAFile: caFile, CertFile: certFile, KeyFile: keyFile})
	if snap := poll(h); snap.Err == nil || !strings.Contains(snap.Err.Error(), "reading client certificate: "+certFile) {
		t.Errorf("without files: %+v", snap)
	}
	cert1, key1 := first.sign("one", time.Hour)
	cert2, key2 := second.sign("two", time.Hour)
	put(t, certFile, cert1)
	put(t, keyFile, key1)
	if snap := poll(h); snap.Err != nil || who != "one 2" {
		t.Fatalf("first certificate: %q, %+v", who, snap)
	}
	put(t, certFile, cert2) // the key is not there yet
	if snap := poll(h); len(snap.Problems) != 0 || who != "one 2" || h.client.dialer.stale == nil {
		t.Errorf("half replaced: %q, %s, %v", who, problemText(snap), h.client.dialer.stale)
	}
	rotated = true
	h.client.dialer.close()
	if snap := poll(h); len(snap.Pods) != 1 || !strings.Contains(problemText(snap), "moreover, reading client certificate "+certFile) {
		t.Errorf("refused: %s", problemText(snap))
	}
	put(t, keyFile, key2)
	if snap := poll(h); len(snap.Problems) != 0 || who != "two 2" {
		t.Errorf("second certificate: %q, %s", who, problemText(snap))
	}
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	if snap := poll(h); len(snap.Problems) != 0 {
		t.Errorf("files gone: %s", problemText(snap))
	}
}
