package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// site is a server of manifests.
type site struct {
	mu     sync.Mutex
	handle http.HandlerFunc
	header http.Header // of the last request
	// unchanged counts the answers 304.
	unchanged atomic.Int64
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	handle := s.handle
	s.header = r.Header.Clone()
	s.mu.Unlock()
	handle(w, r)
}

func (s *site) set(handle http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle = handle
}

func (s *site) asked(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header.Get(name)
}

// serves answers with a manifest, or that it has not changed.
func (s *site) serves(text string) {
	tag := fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256([]byte(text))))
	s.set(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			s.unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, text)
	})
}

// open serves s, at the address if one is given, until the test ends.
func (s *site) open(t *testing.T, address string) *httptest.Server {
	t.Helper()
	server := s.server(t)
	if address != "" {
		silent(t, address)
		l, err := net.Listen("tcp", address)
		must(t, err)
		server.Listener.Close()
		server.Listener = l
	}
	server.Start()
	return server
}

func (s *site) server(t *testing.T) *httptest.Server {
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(server.Close)
	return server
}

// wrong waits until the pod shows a manifest error that says so; with no text, until it shows none.
func (n *node) wrong(name, text string) *v1.Pod {
	n.t.Helper()
	return n.awaitPod(name, fmt.Sprintf("to show the manifest error %q", text), func(p *v1.Pod) error {
		if got := p.Annotations["podrun.io/manifest-error"]; (text == "") != (got == "") || !strings.Contains(got, text) {
			return fmt.Errorf("it shows %q", got)
		}
		return isReady(p)
	})
}

// said waits until serve has said this.
func (n *node) said(text string) {
	n.t.Helper()
	n.await("serve to say "+text, func() error {
		said, err := os.ReadFile(n.log.Name())
		if err == nil && !strings.Contains(string(said), text) {
			err = errors.New("it said:\n" + string(said))
		}
		return err
	})
}

const often = "--http-check-frequency=100ms"

func TestURL(t *testing.T) {
	n := newNode(t)
	s := &site{}
	a, b := manifest("a", "Always", forever), manifest("b", "Always", forever)
	s.serves(a + "---\n" + b)
	server := s.open(t, "")
	url := strings.Replace(server.URL, "://", "://me:hunter2@", 1) + "/n.yaml?token=hunter3"
	n.serve("--manifest-url="+url, "--manifest-url-header=X-Node: n", "--manifest-url-header=X-Key: hunter4", often)
	aPID, bPID := n.mainPID(n.ready("a-n"), "c"), n.mainPID(n.ready("b-n"), "c")
	if _, password, _ := (&http.Request{Header: http.Header{"Authorization": {s.asked("Authorization")}}}).BasicAuth(); password != "hunter2" ||
		s.asked("X-Node") != "n" || s.asked("X-Key") != "hunter4" {
		t.Errorf("asked with %v", s.header)
	}
	n.await("several answers 304", func() error {
		if s.unchanged.Load() < 3 {
			return fmt.Errorf("%d", s.unchanged.Load())
		}
		return nil
	})

	// Whatever the server answers, what runs goes on, and the pods say what is wrong.
	for _, bad := range []struct {
		want   string
		handle http.HandlerFunc
	}{
		{"answered 500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }},
		{"the answer is empty", func(http.ResponseWriter, *http.Request) {}},
		{"not UTF-8", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0, 0xff}) }},
		{"the answer was cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10000")
			_, _ = io.WriteString(w, a)
		}},
		{":6: spec.restartpolicy", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Replace(a, "spec:\n  restartPolicy", "spec:\n  restartpolicy", 1))
		}},
	} {
		s.set(bad.handle)
		n.wrong("a-n", bad.want)
		n.wrong("b-n", bad.want)
		s.serves(a + "---\n" + b)
		n.wrong("a-n", "")
		n.wrong("b-n", "")
	}
	if n.mainPID(n.ready("a-n"), "c") != aPID || n.mainPID(n.ready("b-n"), "c") != bPID {
		t.Error("a pod was restarted")
	}
	aID := n.ready("a-n").Status.ContainerStatuses[0].ContainerID

	// An edit of one, then of the set.
	s.serves(inContainer(a, "env: [{name: A, value: b}]") + "---\n" + b)
	// Asked by id: the old process may end between a look at its status and one at it.
	n.await("a to be replaced", func() error {
		if n.ready("a-n").Status.ContainerStatuses[0].ContainerID == aID {
			return errors.New("the same container")
		}
		return nil
	})
	s.serves(b)
	n.gone("a-n")
	if n.mainPID(n.ready("b-n"), "c") != bPID {
		t.Error("b was restarted")
	}
	s.serves("apiVersion: v1\nkind: List\nitems: []\n")
	n.gone("b-n")

	said, err := os.ReadFile(n.log.Name())
	must(t, err)
	if bytes.Contains(said, []byte("hunter")) {
		t.Error("serve's log has a secret")
	}
}

// With the server down, what it served last runs again after everything of podrun's was lost but its root
// directory.
func TestURLDownAtBoot(t *testing.T) {
	n := newNode(t)
	s := &site{}
	s.serves(manifest("a", "Always", forever))
	server := s.open(t, "")
	flags := []string{"--manifest-url=" + server.URL + "/n.yaml", often}
	n.serve(flags...)
	before := n.ready("a-n")
	n.end(syscall.SIGKILL)
	address := server.Listener.Addr().String()
	server.Close()
	n.ok("down", "--all")
	if got := n.run("diff", "--manifests="+n.manifests, "--node-name=n", flags[0]); got.code != 2 ||
		!strings.HasPrefix(got.stdout, "+ create default/a-n ("+server.URL+"/n.yaml)") || !strings.Contains(got.stderr, "from the cache") {
		t.Errorf("diff: %v", got)
	}

	n.serve(flags...)
	again := n.wrong("a-n", "from the cache")
	if again.UID != before.UID {
		t.Errorf("UID %s became %s", before.UID, again.UID)
	}
	pid := n.mainPID(again, "c")
	s.open(t, address)
	if n.mainPID(n.wrong("a-n", ""), "c") != pid {
		t.Error("it was restarted when the server came back")
	}
	n.end(syscall.SIGTERM)

	// A URL that is asked no more is forgotten; its pod is nobody's.
	n.serve()
	n.gone("a-n")
	if kept, err := os.ReadDir(n.path("root", "manifests")); err != nil || len(kept) > 0 {
		t.Errorf("kept: %v, %v", kept, err)
	}
}

func TestURLOverTLS(t *testing.T) {
	n := newNode(t)
	s := &site{}
	s.serves(manifest("a", "Always", forever))
	server := s.server(t)
	server.StartTLS()
	ca := n.path("ca.pem")
	write := func(der []byte) {
		must(t, os.WriteFile(ca+".new", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
		must(t, os.Rename(ca+".new", ca))
	}
	wrong := otherAuthority(t)
	write(wrong)
	n.serve("--manifest-url="+server.URL, "--manifest-url-ca-file="+ca, often)
	n.said("is not signed by an authority in " + ca)
	if p := n.pod("a-n"); p != nil {
		t.Errorf("it runs: %s", asJSON(p.Status))
	}
	// The file is read again.
	write(server.Certificate().Raw)
	pid := n.mainPID(n.ready("a-n"), "c")
	n.end(syscall.SIGTERM)
	write(wrong)
	n.serve("--manifest-url="+server.URL, "--manifest-url-ca-file="+ca, often)
	if n.mainPID(n.wrong("a-n", "is not signed by an authority"), "c") != pid {
		t.Error("it was restarted")
	}
}

func TestOnceFromURL(t *testing.T) {
	n := newNode(t)
	s := &site{}
	s.serves(manifest("job", "Never", "echo from a server"))
	server := s.open(t, "")
	args := []string{"once", "--manifests=" + n.manifests, "--node-name=n", "--logs=all", "--manifest-url=" + server.URL}
	if r := n.run(args...); r.code != 0 || r.stdout != "from a server\n" {
		t.Error(r)
	}
	s.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	if r := n.run(args...); r.code != 2 || !strings.Contains(r.stderr, "answered 404 Not Found") {
		t.Error(r)
	}
	if kept, err := os.ReadDir(n.path("root", "manifests")); len(kept) > 0 {
		t.Errorf("kept: %v, %v", kept, err)
	}
}

// otherAuthority makes a certificate that signs itself.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	return der
}
