package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// identity is a key with a certificate for 127.0.0.1 that it has signed itself.
type identity struct {
	key               *ecdsa.PrivateKey
	der               []byte
	certFile, keyFile string
}

func newIdentity(t *testing.T, dir string) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "registry"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	i := identity{key, der, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(i.certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(i.keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600))
	return i
}

// freeAddress is one that a program may listen on soon. It is none of those that the kernel gives away meanwhile, as
// to other cases' connections.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		port, err := rand.Int(rand.Reader, big.NewInt(10_000))
		must(t, err)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+port.Int64()))
		if err == nil {
			must(t, l.Close())
			silent(t, l.Addr().String())
			return l.Addr().String()
		}
	}
}

// dockerRegistry runs Debian's docker-registry on what is in dir, with more settings, until the test ends or stop is
// called.
func dockerRegistry(t *testing.T, dir, http, more string) (address string, stop func()) {
	t.Helper()
	address = freeAddress(t)
	file := filepath.Join(dir, "registry.yml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %s}}\n"+
		"http: {addr: %s, secret: s%s}\n%s", filepath.Join(dir, "content"), address, http, more), 0o600))
	var said bytes.Buffer
	cmd := exec.Command("docker-registry", "serve", file)
	cmd.Stdout, cmd.Stderr = &said, &said
	must(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("docker-registry said: %s", said.String())
		}
	})
	t.Cleanup(stop)
	await(t, patience, "docker-registry to listen", func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
	return address, stop
}

// bigImage is the tuned image with a layer of that many bytes that no other image has.
func bigImage(t *testing.T, size int64) (image v1.Image, layer string) {
	t.Helper()
	image, err := tarball.ImageFromPath(setup.tuned, nil)
	must(t, err)
	more, err := random.Layer(size, types.DockerLayer)
	must(t, err)
	digest, err := more.Digest()
	must(t, err)
	image, err = mutate.AppendLayers(image, more)
	must(t, err)
	return image, digest.String()
}

// trust makes a directory for --registry-hosts-dir with which a registry's certificate counts.
func (n *node) trust(name, address, certFile string) (dir string) {
	n.t.Helper()
	dir = n.path(name)
	must(n.t, os.MkdirAll(filepath.Join(dir, address), 0o755))
	must(n.t, os.WriteFile(filepath.Join(dir, address, "hosts.toml"), fmt.Appendf(nil, "server = %q\nca = %q\n", "https://"+address, certFile), 0o600))
	return dir
}

// passwords lets the user me with the password pw in.
const passwords = "me:$2b$04$MAXh66zmIeCDQ8W/gsy/iuIWls0fl3GO.n0n16lmVQHoUy/.UGOme\n"

// TestDockerRegistry: Debian's registry, over TLS, with its two ways to know who pulls.
func TestDockerRegistry(t *testing.T) {
	for _, kind := range []string{"htpasswd", "token"} {
		t.Run(kind, func(t *testing.T) {
			n := bareNode(t)
			open, stop := dockerRegistry(t, n.dir, "", "")
			image, _ := bigImage(t, 1000)
			(&hub{t: t, address: open}).push("private", image)
			stop()
			cert := newIdentity(t, n.path("tls"))
			var auth string
			if kind == "htpasswd" {
				must(t, os.WriteFile(n.path("htpasswd"), []byte(passwords), 0o600))
				auth = fmt.Sprintf("auth: {htpasswd: {realm: hub, path: %s}}\n", n.path("htpasswd"))
			} else {
				auth = tokenServer(t, cert)
			}
			address, _ := dockerRegistry(t, n.dir, fmt.Sprintf(", tls: {certificate: %s, key: %s}", cert.certFile, cert.keyFile), auth)
			ref := address + "/team/private:1"
			config := n.path("config.json")
			pull := func(password string, more ...string) result {
				must(t, os.WriteFile(config, fmt.Appendf(nil, `{"auths":{%q:{"username":"me","password":%q}}}`, address, password), 0o600))
				return n.run(append([]string{"images", "pull", "--registry-config=" + config, ref}, more...)...)
			}
			hosts := "--registry-hosts-dir=" + n.trust("certs.d", address, cert.certFile)
			others := "--registry-hosts-dir=" + n.trust("others.d", address, newIdentity(t, n.path("other")).certFile)
			for what, got := range map[string]result{
				"another's certificate": pull("pw", others),
				"a wrong password":      pull("wrong", hosts),
			} {
				if got.code != 1 || !strings.Contains(got.stderr, ref) || strings.Contains(got.stdout, "sha256") {
					t.Errorf("%s: %v", what, got)
				}
				t.Logf("%s: %s", what, got.stderr)
			}
			if got := pull("pw", hosts); got.code != 0 || !strings.HasPrefix(got.stdout, address+"/team/private@sha256:") {
				t.Error(got)
			}
		})
	}
}

// tokenServer gives tokens to the user me with the password pw, as Docker's does, and returns the settings of a
// registry that wants them.
func tokenServer(t *testing.T, signer identity) string {
	text := func(v any) string {
		data, err := json.Marshal(v)
		must(t, err)
		return base64.RawURLEncoding.EncodeToString(data)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if r.Method == http.MethodPost {
			user, password, ok = r.PostFormValue("username"), r.PostFormValue("password"), true
		}
		if !ok || user != "me" || password != "pw" {
			http.Error(w, `{"details":"who are you"}`, http.StatusUnauthorized)
			return
		}
		now := time.Now()
		signed := text(map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(signer.der)}}) + "." +
			text(map[string]any{
				"iss": "tokens", "sub": "me", "aud": "hub", "jti": "1", "iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(),
				"access": []map[string]any{{"type": "repository", "name": "team/private", "actions": []string{"pull"}}},
			})
		hash := sha256.Sum256([]byte(signed))
		a, b, err := ecdsa.Sign(rand.Reader, signer.key, hash[:])
		if err != nil {
			t.Error(err)
			return
		}
		signature := append(a.FillBytes(make([]byte, 32)), b.FillBytes(make([]byte, 32))...)
		token := signed + "." + base64.RawURLEncoding.EncodeToString(signature)
		fmt.Fprintf(w, `{"token":%q,"access_token":%q,"expires_in":3600}`, token, token)
	}))
	t.Cleanup(server.Close)
	return fmt.Sprintf("auth: {token: {realm: %s, service: hub, issuer: tokens, rootcertbundle: %s}}\n", server.URL, signer.certFile)
}

// TestPullThroughFaults: one layer after another fault on its way from Debian's registry. What is there already is
// not fetched again, what is wrong is found out, and in the end the image is whole.
func TestPullThroughFaults(t *testing.T) {
	n := bareNode(t)
	address, _ := dockerRegistry(t, n.dir, "", "")
	image, layer := bigImage(t, 6<<20)
	(&hub{t: t, address: address}).push("big", image)
	to, err := url.Parse("http://" + address)
	must(t, err)
	pass := httputil.NewSingleHostReverseProxy(to)
	var mu sync.Mutex
	var asked []string // ranges of the layer
	faults := []func(http.ResponseWriter, *http.Request){
		answers(http.StatusInternalServerError, "out of cheese"), answers(http.StatusTooManyRequests, "slow down"), answers(http.StatusUnauthorized, "who are you"),
		through(pass, func(w io.Writer, r io.Reader) { _, _ = io.CopyN(w, r, 3<<20) }), // cut; asked again at once
		answers(http.StatusBadGateway, "away"),                                         // so it fails
		through(pass, func(w io.Writer, r io.Reader) { // slow, and changed in the middle
			_, _ = io.CopyN(w, r, 1<<20)
			time.Sleep(300 * time.Millisecond)
			_, _ = io.CopyN(w, io.MultiReader(strings.NewReader("x"), skip(r, 1)), 1<<30)
		}),
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, layer) {
			mu.Lock()
			asked = append(asked, r.Header.Get("Range"))
			var fault func(http.ResponseWriter, *http.Request)
			if len(faults) > 0 {
				fault, faults = faults[0], faults[1:]
			}
			mu.Unlock()
			if fault != nil {
				fault(w, r)
				return
			}
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	ref := strings.TrimPrefix(proxy.URL, "http://") + "/team/big:1"
	var pulls []result
	await(t, patience, "the image to come", func() error {
		pulls = append(pulls, n.run("images", "pull", ref))
		if last := pulls[len(pulls)-1]; last.code != 0 {
			return fmt.Errorf("%v", last)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	t.Logf("asked for %q in %d pulls; the last: %v", asked, len(pulls), pulls[len(pulls)-1])
	if len(faults) > 0 {
		t.Errorf("%d faults were not met", len(faults))
	}
	resumed := 0
	for _, r := range asked {
		var from int64
		if _, err := fmt.Sscanf(r, "bytes=%d-", &from); err == nil && from >= 1<<20 {
			resumed++
		}
	}
	if resumed < 2 { // within a pull, and by the next
		t.Errorf("only %d times went on from where it was: %q", resumed, asked)
	}
}

func answers(code int, text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
}

// through lets a layer pass, but for what copying does to it.
func through(to http.Handler, copying func(io.Writer, io.Reader)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		to.ServeHTTP(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		copying(w, answer.Body)
		if answer.Body.Len() > 0 {
			panic(http.ErrAbortHandler)
		}
	}
}

// skip leaves out the first n bytes.
func skip(r io.Reader, n int64) io.Reader {
	_, _ = io.CopyN(io.Discard, r, n)
	return r
}
