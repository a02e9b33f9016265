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

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/sys/fileerror"
)

// ListenOptions say where HTTP is served in addition to the socket, and who may send requests.
type ListenOptions struct {
	// Address is HOST:PORT; "" means that only the socket is served.
	Address string
	// CertFile and KeyFile are PEM files, which are read again when they change; "" means no TLS.
	CertFile, KeyFile string
	// TokenFile contains the token that a client must send; it is read for each request. "" means
	// that everybody who can reach the address may send requests.
	TokenFile string
	// History makes the history of what is used be kept also while nobody looks at it.
	History bool
}

// ErrAddress means that the listen options are invalid or do not fit together.
var ErrAddress = errors.New("cannot be used")

// check returns what is wrong with the options.
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
		return fmt.Errorf("%w: other machines are answered only with a certificate, a key and a token file;"+
			" without, the host must be a loopback one, such as 127.0.0.1", ErrAddress)
	}
	if o.TokenFile != "" {
		if _, err := readToken(o.TokenFile); err != nil {
			return fmt.Errorf("%w: %w", ErrAddress, err)
		}
	}
	return nil
}

// listen opens the address. The TLS configuration is nil without a certificate.
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
	// The machine's hosts file decides what "localhost" is.
	if a, ok := l.Addr().(*net.TCPAddr); o.CertFile == "" && (!ok || !a.IP.IsLoopback()) {
		l.Close()
		return nil, nil, fmt.Errorf("%w: %s is not a loopback address", ErrAddress, l.Addr())
	}
	if o.CertFile != "" {
		return l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.get}, nil
	}
	return l, nil, nil
}

// guard returns a handler that passes on only the requests that are allowed at the address.
func (o ListenOptions) guard(h http.Handler) http.Handler {
	if o.TokenFile != "" {
		return withToken(o.TokenFile, h)
	}
	return onlyLocalHost(h)
}

// certificate is a pair of certificate and key files, which are read again when they have changed.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu          sync.Mutex
	versions    [2]fileVersion
	loaded      *tls.Certificate
	loggedError error
}

// fileVersion identifies a version of a file.
type fileVersion struct {
	at   time.Time
	size int64
}

// get returns the certificate in the files. While the files are unusable, for example because only
// one of them has been replaced, it returns the previous certificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]fileVersion
	for i, path := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(path); err == nil {
			now[i] = fileVersion{info.ModTime(), info.Size()}
		}
	}
	if c.loaded != nil && now == c.versions {
		return c.loaded, nil
	}
	pair, err := readPair(c.certFile, c.keyFile)
	if err == nil {
		if c.loaded != nil {
			c.log.Info("certificate reloaded", "file", c.certFile)
		}
		c.loaded, c.versions, c.loggedError = &pair, now, nil
		return c.loaded, nil
	}
	err = fmt.Errorf("reading certificate %s and key %s: %w", c.certFile, c.keyFile, err)
	if c.loaded == nil {
		return nil, err
	}
	if !errtext.Same(err, c.loggedError) {
		c.loggedError = err
		c.log.Warn("reloading the certificate failed; using the previous one", "err", err)
	}
	return c.loaded, nil
}

// readPair reads a certificate and its key.
func readPair(certFile, keyFile string) (tls.Certificate, error) {
	var texts [2][]byte
	for i, path := range []string{certFile, keyFile} {
		text, err := sys.ReadSettings(path)
		if err == nil {
			err = fileerror.CheckPEM(path, text)
		}
		if err != nil {
			return tls.Certificate{}, fileerror.Named(err)
		}
		texts[i] = text
	}
	return tls.X509KeyPair(texts[0], texts[1])
}

// readToken returns the token in a file.
func readToken(path string) (string, error) {
	text, err := sys.ReadSettings(path)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", fileerror.Named(err))
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s has no token", path)
	}
	return token, nil
}

// withToken passes on requests that contain the token: as a bearer token or, for browsers, as the
// password of basic authentication.
func withToken(path string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := readToken(path)
		if err != nil {
			http.Error(w, "clients cannot be authenticated: podrun's token file cannot be used",
				http.StatusServiceUnavailable)
			return
		}
		scheme, given, ok := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			_, given, ok = r.BasicAuth()
		}
		// Hashes are compared, so that the duration depends on neither the length nor the content
		// of the token.
		a, b := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
		if !ok || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			w.Header().Add("WWW-Authenticate", `Bearer realm="podrun"`)
			w.Header().Add("WWW-Authenticate", `Basic realm="podrun"`)
			w.Header().Set("Connection", "close") // unauthorized clients must not hold any of the few connections
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}
