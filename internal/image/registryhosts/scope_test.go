package registryhosts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

const blob, secret = "some blob", "s3cret"

// pair writes a certificate for 127.0.0.1 and its key to a file.
func pair(t *testing.T, name string) (file string, c tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text := append(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	file = filepath.Join(t.TempDir(), name+".pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err = tls.X509KeyPair(text, text); err != nil {
		t.Fatal(err)
	}
	return file, c
}

// host is a server that answers as a registry, and as one that gives tokens. It writes down who asks it for what.
type host struct {
	*httptest.Server
	realm, blobs string // the URLs to which it leads
	mu           sync.Mutex
	asked        []string
}

func serve(t *testing.T, certificate *tls.Certificate) *host {
	h := &host{}
	h.Server = httptest.NewUnstartedServer(h)
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	if certificate == nil {
		h.Start()
	} else {
		h.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}, ClientAuth: tls.RequestClientCert}
		h.StartTLS()
	}
	t.Cleanup(h.Close)
	h.realm, h.blobs = h.URL, h.URL
	return h
}

// seen returns what the host was asked for, and by whom.
func (h *host) seen() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.asked, ", ")
}

func (h *host) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	what, client := strings.Split(q.URL.Path, "/")[1], "nobody"
	if q.TLS != nil && len(q.TLS.PeerCertificates) > 0 {
		client = q.TLS.PeerCertificates[0].Subject.CommonName
	}
	for _, values := range q.Header {
		if strings.Contains(fmt.Sprint(values), secret) && !strings.HasSuffix(client, "header") {
			client += " with the header"
		}
	}
	h.mu.Lock()
	if line := what + " by " + client; len(h.asked) == 0 || h.asked[len(h.asked)-1] != line {
		h.asked = append(h.asked, line)
	}
	h.mu.Unlock()
	switch {
	case what == "token":
		fmt.Fprint(w, `{"token":"t"}`)
	case what == "blob":
		fmt.Fprint(w, blob)
	case q.Header.Get("Authorization") != "Bearer t":
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q,service=x", h.realm+"/token"))
		w.WriteHeader(http.StatusUnauthorized)
	default:
		http.Redirect(w, q, h.blobs+"/blob", http.StatusTemporaryRedirect)
	}
}

// fetch fetches the blob from a registry with a hosts.toml file.
func fetch(t *testing.T, toml string) error {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts := Bounded(t.Context(), config.HostOptions{HostDir: func(string) (string, error) { return dir, nil }})
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: hosts})
	f, err := resolver.Fetcher(t.Context(), "registry.example/a:1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Fetch(t.Context(), imagespec.Descriptor{MediaType: imagespec.MediaTypeImageLayer,
		Digest: digest.FromString(blob), Size: int64(len(blob))})
	if err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err == nil && string(text) != blob {
		t.Errorf("got %q", text)
	}
	return err
}

// TestSettingsStayWithTheirHost checks that a registry's client certificate, header and skip_verify do not apply to the
// hosts to which it redirects, or which it names for tokens.
func TestSettingsStayWithTheirHost(t *testing.T) {
	client, _ := pair(t, "client")
	authority, unknown := pair(t, "unknown")
	trusted, known := pair(t, "known")
	t.Setenv("SSL_CERT_FILE", trusted) // read once: no other test of this package may verify a certificate
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	other, _ := pair(t, "other")
	toToken := func(registry, away *host) { registry.realm = away.URL }
	toBlob := func(registry, away *host) { registry.blobs = away.URL }
	both := func(registry, away *host) { toToken(registry, away); toBlob(registry, away) }
	inFile := func(away *host) string {
		return fmt.Sprintf("[host.%q]\nclient = %q\nskip_verify = true\n", away.URL, other)
	}
	const (
		first     = "v2 by client with the header"
		all       = first + ", token by client with the header, " + first
		bare      = "token by nobody, blob by nobody"
		untrusted = "certificate signed by unknown authority"
	)
	plain := strings.NewReplacer("client", "nobody")
	for name, c := range map[string]struct {
		registry, away *tls.Certificate // nil: plain HTTP
		lead           func(registry, away *host)
		more           func(away *host) string // of the hosts.toml file
		home           string
		elsewhere      string
		fails          string
	}{
		"all at the registry":          {&unknown, &known, nil, nil, all + ", blob by client with the header", "", ""},
		"all elsewhere":                {&unknown, &known, both, nil, first, bare, ""},
		"an unknown host's blob":       {&unknown, &unknown, toBlob, nil, all, "", untrusted},
		"an unknown host's token":      {&unknown, &unknown, toToken, nil, first, "", untrusted},
		"a host of the same file":      {&unknown, &unknown, both, inFile, first, "token by other, blob by other", ""},
		"the registry's own authority": {&unknown, &unknown, both, nil, first, bare, ""},
		"plain HTTP":                   {nil, nil, nil, nil, plain.Replace(all) + ", blob by nobody with the header", "", ""},
		"plain HTTP elsewhere":         {nil, nil, both, nil, plain.Replace(first), bare, ""},
		"from TLS to plain HTTP":       {&unknown, nil, both, nil, first, bare, ""},
	} {
		t.Run(name, func(t *testing.T) {
			registry, away := serve(t, c.registry), serve(t, c.away)
			if c.lead != nil {
				c.lead(registry, away)
			}
			toml := fmt.Sprintf("server = %q\n[host.%[1]q]\n", registry.URL)
			if c.registry != nil {
				toml += fmt.Sprintf("client = %q\nskip_verify = true\n", client)
			}
			if strings.Contains(name, "authority") {
				toml += fmt.Sprintf("ca = %q\n", authority)
			}
			toml += fmt.Sprintf("[host.%q.header]\nx-secret = [%q]\naccept = %q\n", registry.URL, secret, "application/"+secret)
			if c.more != nil {
				toml += c.more(away)
			}
			err := fetch(t, toml)
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Error(err)
			}
			if got := registry.seen(); got != c.home {
				t.Errorf("the registry was asked: %s", got)
			}
			if got := away.seen(); got != c.elsewhere {
				t.Errorf("the other host was asked: %s", got)
			}
		})
	}
}
