package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// ListenOptions say where HTTP is answered beside the socket, and who may ask.
type ListenOptions struct {
	// Address is HOST:PORT; empty: nowhere.
	Address string
	// CertFile and KeyFile, in PEM, are read anew when they change; empty: no TLS.
	CertFile, KeyFile string
	// TokenFile has what a client must know; it is read for each request. Empty: whoever reaches the address may
	// ask.
	TokenFile string
}

// ErrAddress says that what was given to listen with does not go together.
var ErrAddress = errors.New("cannot be used")

// check says what is wrong with the options.
func (o ListenOptions) check() error {
	host, port, err := net.SplitHostPort(o.Address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	switch {
	case o.Address == "":
		return fmt.Errorf("%w: a certificate, a key and a token file are for an address, and there is none", ErrAddress)
	case err != nil:
		return fmt.Errorf("%w: must be HOST:PORT, such as 127.0.0.1:10255", ErrAddress)
	case (o.CertFile == "") != (o.KeyFile == ""):
		return fmt.Errorf("%w: a certificate and a key must be given both or neither", ErrAddress)
	case !local(host) && (o.CertFile == "" || o.TokenFile == ""):
		return fmt.Errorf("%w: other machines are answered only with a certificate, a key and a token file; without, the host must be a loopback one, such as 127.0.0.1", ErrAddress)
	}
	if o.TokenFile != "" {
		if _, err := readToken(o.TokenFile); err != nil {
			return fmt.Errorf("%w: %w", ErrAddress, err)
		}
	}
	return nil
}

// listen takes the address; with TLS, as the configuration says.
func (o ListenOptions) listen(log *slog.Logger) (net.Listener, *tls.Config, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	certificate := &certificate{certFile: o.CertFile, keyFile: o.KeyFile, log: log}
	if o.CertFile != "" {
		if _, err := certificate.get(nil); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrAddress, err)
		}
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, nil, err
	}
	// "localhost" is what the machine's hosts file says it is.
	if a, ok := l.Addr().(*net.TCPAddr); o.CertFile == "" && (!ok || !a.IP.IsLoopback()) {
		l.Close()
		return nil, nil, fmt.Errorf("%w: %s is no loopback address", ErrAddress, l.Addr())
	}
	if o.CertFile != "" {
		return l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.get}, nil
	}
	return l, nil, nil
}

// guard lets only those in who may ask at the address.
func (o ListenOptions) guard(h http.Handler) http.Handler {
	if o.TokenFile != "" {
		return withToken(o.TokenFile, h)
	}
	return forThisHost(h)
}

// certificate is a pair of files that is read when it has changed.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu          sync.Mutex
	stamps      [2]stamp
	loaded      *tls.Certificate
	loggedError string
}

// stamp tells a file from what it was before.
type stamp struct {
	at   time.Time
	size int64
}

// get returns what the files have; while they cannot be used, as between the writing of one and the other, what they
// had.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]stamp
	for i, path := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(path); err == nil {
			now[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	if c.loaded != nil && now == c.stamps {
		return c.loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		if c.loaded != nil {
			c.log.Info("the certificate has changed", "file", c.certFile)
		}
		c.loaded, c.stamps, c.loggedError = &pair, now, ""
		return c.loaded, nil
	}
	err = fmt.Errorf("reading certificate %s and key %s: %w", c.certFile, c.keyFile, err)
	if c.loaded == nil {
		return nil, err
	}
	if err.Error() != c.loggedError {
		c.loggedError = err.Error()
		c.log.Warn("the certificate that was read before stays", "why", err)
	}
	return c.loaded, nil
}

// readToken reads the token that a file has.
func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s has no token", path)
	}
	return token, nil
}

// withToken answers those who know the token: as a bearer or, for people with a browser, as a password.
func withToken(path string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := readToken(path)
		if err != nil {
			http.Error(w, "nobody can be known now: podrun's token file cannot be used", http.StatusServiceUnavailable)
			return
		}
		scheme, given, ok := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			_, given, ok = r.BasicAuth()
		}
		// Hashes are compared, so that neither length nor content shows in how long it takes.
		a, b := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
		if !ok || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			w.Header().Add("WWW-Authenticate", `Bearer realm="podrun"`)
			w.Header().Add("WWW-Authenticate", `Basic realm="podrun"`)
			w.Header().Set("Connection", "close") // who may not ask keeps none of the few connections
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}
