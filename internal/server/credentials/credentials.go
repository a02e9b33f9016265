// Package credentials reads the certificate and the token that administrators give to the server, again whenever the
// files change, and judges what clients send.
//
// Begin reading at WithToken and Certificate.Get.
package credentials

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/sys/fileerror"
)

// Certificate is a pair of certificate and key files, which are read again when they have changed.
type Certificate struct {
	CertFile, KeyFile string
	Log               *slog.Logger

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

// Get returns the certificate in the files. While the files are unusable, for example because only
// one of them has been replaced, it returns the previous certificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]fileVersion
	for i, path := range []string{c.CertFile, c.KeyFile} {
		if info, err := os.Stat(path); err == nil {
			now[i] = fileVersion{info.ModTime(), info.Size()}
		}
	}
	if c.loaded != nil && now == c.versions {
		return c.loaded, nil
	}
	pair, err := readPair(c.CertFile, c.KeyFile)
	if err == nil {
		if c.loaded != nil {
			c.Log.Info("certificate reloaded", "file", c.CertFile)
		}
		c.loaded, c.versions, c.loggedError = &pair, now, nil
		return c.loaded, nil
	}
	err = fmt.Errorf("reading certificate %s and key %s: %w", c.CertFile, c.KeyFile, err)
	if c.loaded == nil {
		return nil, err
	}
	if !errtext.Same(err, c.loggedError) {
		c.loggedError = err
		c.Log.Warn("reloading the certificate failed; using the previous one", "err", err)
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

// ReadToken returns the token in a file.
func ReadToken(path string) (string, error) {
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

// WithToken passes on requests that contain the token: as a bearer token or, for browsers, as the
// password of basic authentication.
func WithToken(path string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := ReadToken(path)
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
