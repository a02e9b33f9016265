package http

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/source"
)

const (
	// requestTimeout bounds a whole request, including redirects and body.
	requestTimeout = 10 * time.Second
	// maxRedirects is about the limit of browsers and curl.
	maxRedirects = 10
	// maxDiscarded is how many bytes of an unused response body are read so that its connection can
	// be reused.
	maxDiscarded = 64 << 10
)

// client requests one URL. Of a response it checks only whether it is complete.
type client struct {
	url *url.URL // without user and password
	// header has the user's headers and the credentials of the URL. It is sent to the URL's own
	// host only and is never shown.
	header http.Header
	dialer *dialer
}

// newClient returns a client for u. It moves the credentials of u into the Authorization header,
// unless header has one.
func newClient(u url.URL, header http.Header, d *dialer) *client {
	if u.User != nil && header.Get("Authorization") == "" {
		password, _ := u.User.Password()
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return &client{url: &u, header: header, dialer: d}
}

// get sends one GET request, a conditional one if v is not empty.
func (c *client) get(ctx context.Context, v source.Validators) answer {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	transport, err := c.dialer.transport(func(u *url.URL) bool { return sameHost(c.url, u) })
	if err != nil {
		return answer{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url.String(), nil)
	if err != nil {
		return answer{err: c.reason(err)}
	}
	c.dress(req, v, true)
	follow := func(req *http.Request, via []*http.Request) error { return c.follow(req, via, v) }
	resp, err := (&http.Client{Transport: transport, CheckRedirect: follow}).Do(req)
	if err != nil {
		c.dialer.close() // in case the connection is the cause, the next request opens another
		return answer{err: c.reason(err)}
	}
	defer resp.Body.Close()
	a := c.read(resp)
	if a.err != nil {
		c.dialer.close()
	}
	return a
}

// dress sets the headers of a request. home is set if the request goes to the URL's own host; only
// then are the user's headers sent.
func (c *client) dress(req *http.Request, v source.Validators, home bool) {
	for name, values := range c.header {
		switch {
		case !home:
			req.Header.Del(name)
		case name == "Host":
			req.Host = values[0]
		default:
			req.Header[name] = values
		}
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "podrun")
	}
	req.Header.Del("Referer") // it may have secrets in its query
	req.Header.Del("If-None-Match")
	req.Header.Del("If-Modified-Since")
	if v.At != manifest.Digest([]byte(req.URL.String())) {
		return
	}
	if v.ETag != "" {
		req.Header.Set("If-None-Match", v.ETag)
	}
	if v.LastModified != "" {
		req.Header.Set("If-Modified-Since", v.LastModified)
	}
}

// follow decides whether a redirect is followed, and sets the headers of the new request.
func (c *client) follow(req *http.Request, via []*http.Request, v source.Validators) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("redirects more than %d times", maxRedirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("refused: redirects from https to %s", MaskURL(req.URL.String()))
	}
	home := sameHost(c.url, req.URL)
	for _, earlier := range via {
		home = home && sameHost(c.url, earlier.URL)
	}
	if !home {
		req.Host = ""
	}
	c.dress(req, v, home)
	return nil
}

// sameHost reports whether credentials for a may be sent to b: host and port are the same, or b is
// the same host by https where a is http, both on their default ports.
func sameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	upgrade := a.Scheme == "http" && port(a) == "80" && b.Scheme == "https" && port(b) == "443"
	return a.Hostname() == b.Hostname() && (upgrade || a.Scheme == b.Scheme && port(a) == port(b))
}

// read reads a response.
func (c *client) read(resp *http.Response) answer {
	now := time.Now()
	h := resp.Header
	asked := resp.Request.Header
	a := answer{
		status: resp.StatusCode, text: http.StatusText(resp.StatusCode),
		conditional: asked.Get("If-None-Match") != "" || asked.Get("If-Modified-Since") != "",
		retryAfter:  retryAfter(h.Get("Retry-After"), h.Get("Date"), now),
		validators:  validatorsOf(h, resp.Request.URL, now),
		// Up to HTTP/1.1, the end of the connection may mark the end of a response. gzip has a
		// length of its own.
		unframed: resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 &&
			!resp.Uncompressed,
	}
	if a.status != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, maxDiscarded)
		return a
	}
	tooLong := fmt.Errorf("the answer has more than %d MiB", decode.MaxSize>>20)
	if resp.ContentLength > decode.MaxSize {
		a.err = tooLong
		return a
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, decode.MaxSize+1))
	switch {
	case err != nil:
		a.err = c.reason(err)
	case len(body) > decode.MaxSize:
		a.err = tooLong
	default:
		a.body = body
	}
	return a
}

// validatorsOf returns the validators of a response; none if the body was modified less than 2 s
// before it was served: it may change again without a new date, which has a resolution of a second,
// or a new entity tag that is made from the date.
func validatorsOf(h http.Header, at *url.URL, now time.Time) source.Validators {
	v := source.Validators{
		ETag:         h.Get("ETag"),
		LastModified: h.Get("Last-Modified"),
		At:           manifest.Digest([]byte(at.String())),
	}
	if v.LastModified == "" {
		return v
	}
	if date, err := parseDate(h.Get("Date")); err == nil {
		now = date
	}
	if changed, err := parseDate(v.LastModified); err != nil || now.Sub(changed) < 2*time.Second {
		return source.Validators{}
	}
	return v
}

// reason returns an error for a failed request. Its text is the same for the same failure, because
// a changed text would be reported as news, and has no secrets of the URL.
func (c *client) reason(err error) error {
	var inURL *url.Error
	for errors.As(err, &inURL) {
		err = inURL.Err
	}
	var (
		op       *net.OpError
		dns      *net.DNSError
		unknown  x509.UnknownAuthorityError
		invalid  x509.CertificateInvalidError
		hostname x509.HostnameError
	)
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		text = fmt.Sprintf("no whole answer within %v", requestTimeout)
	case errors.Is(err, io.ErrUnexpectedEOF):
		text = "the answer was cut off"
	case errors.Is(err, io.EOF):
		text = "the connection was closed without an answer"
	case errors.As(err, &unknown):
		text = "the server's certificate is not signed by a known authority"
		if c.dialer.caFile != "" {
			text = "the server's certificate is not signed by an authority in " + c.dialer.caFile
		}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		text = fmt.Sprintf(
			"the server's certificate is valid from %s to %s, and this machine's clock is outside that period",
			invalid.Cert.NotBefore.Format(time.RFC3339), invalid.Cert.NotAfter.Format(time.RFC3339))
	case errors.As(err, &hostname):
		text = "the server's certificate is of another host: " + hostname.Error()
	case errors.As(err, &dns) && dns.IsNotFound:
		text = fmt.Sprintf("looking up %s: no such host", dns.Name)
	case errors.As(err, &dns):
		text = fmt.Sprintf("looking up %s: no answer from the name server", dns.Name)
	case errors.As(err, &op) && op.Op != "dial":
		text = op.Op + ": " + op.Err.Error() // op has a port number that is never the same
	}
	if c.dialer.stale != nil {
		text += "; moreover, " + c.dialer.stale.Error()
	}
	return errors.New(maskText(text))
}
