// Package http implements manifest.Source for the manifests that a URL serves.
//
// It polls the URL and checks whether a response can be used. It never shows credentials. Package
// source retains the last good response; package manifest decodes and validates manifests.
//
// Begin reading at Source and its Run method.
package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/source"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/sys/errtext"
)

// DefaultCheckFrequency is the interval between two requests; each interval varies at random by 10
// %.
const DefaultCheckFrequency = 20 * time.Second

// Options configures an HTTP source.
type Options struct {
	// URL is an http or https URL; it may have a user and password.
	URL string
	// Headers are sent with each request to the URL's own host. Each has the form "Name: value".
	// Their values are never shown.
	Headers []string
	// CAFile has the certificate authorities to trust instead of the system's; CertFile and KeyFile
	// are the client's certificate and key. All are PEM files, may be empty, and are read again
	// when they change.
	CAFile, CertFile, KeyFile string
	// CheckFrequency is the interval between two requests; 0 means DefaultCheckFrequency.
	CheckFrequency time.Duration
	// NodeName and NoSuffix have the meaning that they have in manifest.LoadOptions.
	NodeName string
	NoSuffix bool
	// Policy refuses pods that need more privileges than it allows; nil allows all pods.
	Policy *podsecurity.Policy
	// Rules are those of manifest.LoadOptions.
	Rules support.Rules
	// CacheDir is the directory where the last good response is saved; empty: it is not saved.
	CacheDir string
	// CacheReadOnly uses a saved response in CacheDir and never writes one.
	CacheReadOnly bool
	// Dial connects to the server; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log receives the log messages of the source.
	Log *slog.Logger
}

// Source reads the manifests that a URL serves. It implements manifest.Source. Whatever fails, the
// last good set of manifests remains in use.
type Source struct {
	name     string
	every    time.Duration
	log      *slog.Logger
	client   *client
	standing standing
	last     *source.LastGood
	// stale is the last error about the certificate files that was logged.
	stale error
}

// Kind is the kind of URLs, the kubelet's "http".
var Kind = manifest.SourceKind{Name: manifest.SourceHTTP, Identity: "url:", LogsProblems: true}

// New returns a Source. It reads no file and sends no request before Run. Its errors, which report
// invalid options, contain no secret.
func New(o Options) (*Source, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("manifest URL: is not a valid URL;" +
			" user and password need %-escapes for special characters")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("manifest URL %s: must be http://HOST/… or https://HOST/…", MaskURL(o.URL))
	case u.Port() != "" && !isPort(u.Port()):
		return nil, fmt.Errorf("manifest URL %s: its port must be a number from 1 to 65535", MaskURL(o.URL))
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, fmt.Errorf(
			"manifest URL %s: a client certificate needs both a certificate file and a key file", MaskURL(o.URL))
	case u.Scheme == "http" && o.CAFile+o.CertFile != "":
		return nil, fmt.Errorf(
			"manifest URL %s: a CA or client certificate can be used with https only", MaskURL(o.URL))
	case o.CheckFrequency < 0:
		return nil, fmt.Errorf("manifest URL %s: check frequency %v is negative", MaskURL(o.URL), o.CheckFrequency)
	}
	header, err := parseHeaders(o.Headers)
	if err != nil {
		return nil, err
	}
	if o.CheckFrequency == 0 {
		o.CheckFrequency = DefaultCheckFrequency
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: requestTimeout}).DialContext
	}
	d := &dialer{
		caFile:   o.CAFile,
		certFile: o.CertFile,
		keyFile:  o.KeyFile,
		dial:     o.Dial,
		idle:     max(90*time.Second, 3*o.CheckFrequency),
	}
	name := MaskURL(o.URL)
	return &Source{
		name:     name,
		every:    o.CheckFrequency,
		log:      o.Log,
		client:   newClient(*u, header, d),
		standing: standing{url: o.URL, node: o.NodeName},
		last: source.NewLastGood(source.Options{
			Kind:          Kind,
			Identity:      o.URL,
			Name:          name,
			NodeName:      o.NodeName,
			NoSuffix:      o.NoSuffix,
			Policy:        o.Policy,
			Rules:         o.Rules,
			CacheDir:      o.CacheDir,
			CacheReadOnly: o.CacheReadOnly,
			Empty:         "the answer is empty; to stop all pods, serve a List without items",
			LogKey:        "url",
			Log:           o.Log,
		}),
	}, nil
}

// parseHeaders parses "Name: value" lines. Its errors contain the number and the name of a line,
// never its value.
func parseHeaders(lines []string) (http.Header, error) {
	header := http.Header{}
	for i, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		isToken := func(r rune) bool {
			return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' ||
				strings.ContainsRune("!#$%&'*+-.^_`|~", r)
		}
		if !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isToken(r) }) {
			return nil, fmt.Errorf("manifest URL header %d: must be 'Name: value'", i+1)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if slices.Contains([]string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range", "Connection",
			"Content-Length", "Transfer-Encoding", "Referer"}, name) {
			return nil, fmt.Errorf("manifest URL header %d: %s is set by podrun itself", i+1, name)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, fmt.Errorf("manifest URL header %d: the value of %s has control characters", i+1, name)
		}
		header.Add(name, value)
	}
	return header, nil
}

// Name returns the URL without its secrets.
func (h *Source) Name() string { return h.name }

// Run requests the URL at once and then periodically, and sends a Snapshot when the result changed.
// It sends the first one after the first response or failure. It returns nil when ctx ends.
func (h *Source) Run(ctx context.Context, out chan<- manifest.Snapshot) error {
	defer h.client.dialer.close()
	h.last.Recall(ctx)
	for n := uint32(0); ; n++ {
		a := h.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		h.record(a, time.Now())
		if !h.last.Send(ctx, out) {
			return nil
		}
		timer := time.NewTimer(h.standing.pace(h.every, a.retryAfter, h.standing.spread(n)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// ask requests the URL once. If it cannot be detected whether the response is complete, ask
// requests it a second time and returns an error unless both are the same.
func (h *Source) ask(ctx context.Context) answer {
	a := h.client.get(ctx, h.last.Validators())
	if !a.unframed || a.refusal() != nil || a.body == nil || h.last.IsCurrent(a.body) {
		return a
	}
	again := h.client.get(ctx, source.Validators{})
	if again.refusal() == nil && !bytes.Equal(a.body, again.body) {
		again.err = errors.New("two responses without a length differ, so they may be cut off")
	}
	return again
}

// record applies a response.
func (h *Source) record(a answer, now time.Time) {
	h.standing.record(a)
	switch err := a.refusal(); {
	case err != nil:
		h.last.Fail(err, now)
	case a.status == http.StatusNotModified:
		h.last.Confirm(now)
	default:
		h.last.Accept(a.body, a.validators, now)
	}
	h.reportStale()
}

// reportStale logs once that the certificate files cannot be read.
func (h *Source) reportStale() {
	if stale := h.client.dialer.stale; stale == nil {
		h.stale = nil
	} else if !errtext.Same(h.stale, stale) && h.client.dialer.made != nil {
		h.stale = stale
		h.log.Warn("certificates cannot be reloaded; the previous ones are used", "url", h.name, "err", h.stale)
	}
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
