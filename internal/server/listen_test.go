package server

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/server/credentials"
)

// writeIdentity writes a certificate for 127.0.0.1 with a serial number, and its key.
func writeIdentity(t *testing.T, o ListenOptions, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, o.CertFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, o.KeyFile, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func secure(t *testing.T) ListenOptions {
	dir := t.TempDir()
	o := ListenOptions{Address: "0.0.0.0:0", CertFile: filepath.Join(dir, "c"), KeyFile: filepath.Join(dir, "k"), TokenFile: filepath.Join(dir, "t")}
	writeIdentity(t, o, 1)
	write(t, o.TokenFile, "s3cret\n")
	return o
}

func TestListenForOthers(t *testing.T) {
	o := secure(t)
	s, err := Listen(filepath.Join(t.TempDir(), "s"), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, handler(fakeNode{})) }()
	port := s.Address().(*net.TCPAddr).Port
	ask := func(set func(*http.Request)) (status int, serial int64) {
		t.Helper()
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, //nolint:gosec // what it is, is looked at
			VerifyConnection:   func(c tls.ConnectionState) error { serial = c.PeerCertificates[0].SerialNumber.Int64(); return nil },
		}}}
		r, err := http.NewRequest(http.MethodGet, "https://"+net.JoinHostPort("127.0.0.1", strings.TrimPrefix(s.Address().String()[strings.LastIndex(s.Address().String(), ":"):], ":"))+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "podrun.example" // as other machines call it
		set(r)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode, serial
	}
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	for what, c := range map[string]struct {
		set  func(*http.Request)
		want int
	}{
		"the token":                {bearer("s3cret"), 200},
		"the token, in lower case": {func(r *http.Request) { r.Header.Set("Authorization", "bearer s3cret") }, 200},
		"in capitals":              {bearer("S3CRET"), 401},
		"without a scheme":         {func(r *http.Request) { r.Header.Set("Authorization", "s3cret") }, 401},
		"the token as a password":  {func(r *http.Request) { r.SetBasicAuth("anybody", "s3cret") }, 200},
		"none":                     {func(*http.Request) {}, 401},
		"an empty one":             {bearer(""), 401},
		"another":                  {bearer("s3cret2"), 401},
	} {
		if status, _ := ask(c.set); status != c.want {
			t.Errorf("%s: got %d, want %d", what, status, c.want)
		}
	}
	write(t, o.TokenFile, "other")
	if status, _ := ask(bearer("other")); status != 200 {
		t.Errorf("a new token: %d", status)
	}
	if status, _ := ask(bearer("s3cret")); status != 401 {
		t.Errorf("the old token: %d", status)
	}
	write(t, o.TokenFile, " \n")
	if status, _ := ask(bearer("")); status != 503 {
		t.Errorf("no token: %d", status)
	}
	write(t, o.TokenFile, "other")
	writeIdentity(t, o, 22)
	if status, serial := ask(bearer("other")); status != 200 || serial != 22 {
		t.Errorf("a new certificate: %d, %d", status, serial)
	}
	write(t, o.KeyFile, "garbage")
	if status, serial := ask(bearer("other")); status != 200 || serial != 22 {
		t.Errorf("a certificate that cannot be used: %d, %d", status, serial)
	}
	// A request without TLS does not succeed.
	c, err := net.Dial("tcp", (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.0\r\nAuthorization: Bearer other\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(c).ReadString('\n'); strings.Contains(line, "200") {
		t.Errorf("in plain text: %q", line)
	}
	cancel()
	<-done
}

func TestListenNeedsAllThree(t *testing.T) {
	good := secure(t)
	for what, change := range map[string]func(*ListenOptions){
		"no token":           func(o *ListenOptions) { o.TokenFile = "" },
		"no certificate":     func(o *ListenOptions) { o.CertFile, o.KeyFile = "", "" },
		"no key":             func(o *ListenOptions) { o.KeyFile = "" },
		"no key, local":      func(o *ListenOptions) { o.KeyFile, o.Address = "", "127.0.0.1:0" },
		"no address":         func(o *ListenOptions) { o.Address = "" },
		"a token alone":      func(o *ListenOptions) { *o = ListenOptions{TokenFile: o.TokenFile} },
		"no such port":       func(o *ListenOptions) { o.Address = "127.0.0.1:65536" },
		"no such token file": func(o *ListenOptions) { o.TokenFile += "x" },
		"no such key file":   func(o *ListenOptions) { o.KeyFile += "x" },
		"an empty token":     func(o *ListenOptions) { o.TokenFile = filepath.Join(t.TempDir(), "e"); write(t, o.TokenFile, "\n") },
	} {
		o := good
		change(&o)
		if s, err := Listen(filepath.Join(t.TempDir(), "s"), o, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", what, err)
			if s != nil {
				s.Close()
			}
		}
	}
}

// endless is a Node whose log never ends.
type endless struct{ fakeNode }

func (endless) Log(ctx context.Context, _ LogRequest, out io.Writer) error {
	_, _ = io.WriteString(out, "first\n")
	<-ctx.Done()
	return ctx.Err()
}

// TestFollowingEndsWithTheServer: a client that follows a log gets what exists at once, and does
// not delay the end of the server.
func TestFollowingEndsWithTheServer(t *testing.T) {
	s, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, NewHandler(Options{Node: endless{}, Metrics: http.NotFoundHandler(), Resource: http.NotFoundHandler(), Containers: http.NotFoundHandler(), Probes: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)}))
	}()
	answer, err := http.Get("http://" + s.Address().String() + "/containerLogs/a/b/c?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body := bufio.NewReader(answer.Body)
	if line, err := body.ReadString('\n'); line != "first\n" {
		t.Errorf("%q, %v", line, err)
	}
	cancel()
	if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
		t.Errorf("cut off: %q, %v", rest, err)
	}
	<-done
}

// TestRefusedConnections: a client without permission cannot hold any of the few connections.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "s3cret")
	asked := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is answered") })
	for what, h := range map[string]http.Handler{"without the token": credentials.WithToken(token, asked), "for another name": onlyLocalHost(asked)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://podrun.example/pods", nil))
		if w.Code < 400 || w.Header().Get("Connection") != "close" {
			t.Errorf("%s: %d, %v", what, w.Code, w.Header())
		}
	}
}
