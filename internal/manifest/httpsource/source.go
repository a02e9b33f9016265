// Package httpsource is the source of the manifests that a URL serves: it asks now and then, judges whether what
// came can be used, and keeps the last good answer on disk for a start while the server is down. What the answers
// say is for package manifest to read.
package httpsource

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
	"strings"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/validate"
)

// DefaultCheckFrequency is how often a URL is asked, give or take a tenth.
const DefaultCheckFrequency = 20 * time.Second

// Options describe an HTTP source.
type Options struct {
	// URL is http or https; it may have a user and password.
	URL string
	// Headers are sent with each request to the URL's host, as "Name: value". They are never shown.
	Headers []string
	// CAFile has the authorities to trust instead of the system's; CertFile and KeyFile are the client's.
	// They are read again when they change.
	CAFile, CertFile, KeyFile string
	// CheckFrequency is DefaultCheckFrequency if it is 0.
	CheckFrequency time.Duration
	// NodeName and NoSuffix are those of manifest.LoadOptions.
	NodeName string
	NoSuffix bool
	// Policy refuses pods that ask for more; nil: none.
	Policy *validate.Policy
	// CacheDir keeps the last good set over a reboot; empty: it is not kept.
	CacheDir string
	// CacheReadOnly uses what is kept there and writes nothing.
	CacheReadOnly bool
	// Dial connects to the server, in place of the network; may be nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger
}

// Source is of what a URL serves. Whatever goes wrong there, the last good set stays.
type Source struct {
	every    time.Duration
	log      *slog.Logger
	client   *client
	cache    cache
	standing standing
	outage   outage
	// stale is what was logged last about the certificates' files.
	stale string
}

// New returns a source that reads no file and asks nobody before Run. Its errors do not show any
// secret.
func New(o Options) (*Source, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("manifest URL: cannot be read as a URL; user and password need %-escapes for special characters")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("manifest URL %s: must be http://HOST/… or https://HOST/…", maskURL(o.URL))
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, fmt.Errorf("manifest URL %s: a client certificate needs both its certificate and its key file", maskURL(o.URL))
	case u.Scheme == "http" && o.CAFile+o.CertFile != "":
		return nil, fmt.Errorf("manifest URL %s: a CA or client certificate is of use with https only", maskURL(o.URL))
	case o.CheckFrequency < 0:
		return nil, fmt.Errorf("manifest URL %s: check frequency %v is negative", maskURL(o.URL), o.CheckFrequency)
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
	d := &dialer{caFile: o.CAFile, certFile: o.CertFile, keyFile: o.KeyFile, dial: o.Dial, idle: max(90*time.Second, 3*o.CheckFrequency)}
	return &Source{
		every:    o.CheckFrequency,
		log:      o.Log,
		client:   newClient(*u, header, d),
		cache:    cache{dir: o.CacheDir, readOnly: o.CacheReadOnly, key: manifest.Digest([]byte(o.URL))},
		standing: standing{url: o.URL, shown: maskURL(o.URL), node: o.NodeName, noSuffix: o.NoSuffix, policy: o.Policy},
	}, nil
}

// parseHeaders reads "Name: value" lines. Errors tell a line's number and name, never its value.
func parseHeaders(lines []string) (http.Header, error) {
	header := http.Header{}
	for i, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		isToken := func(r rune) bool {
			return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
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

// Name is the URL without its secrets.
func (h *Source) Name() string { return h.standing.shown }

// Run asks at once, and then again and again. It sends a Snapshot when there is something new; the first
// comes with the first answer or failure.
func (h *Source) Run(ctx context.Context, out chan<- manifest.Snapshot) error {
	defer h.client.dialer.close()
	h.standing.done = ctx.Done()
	h.recall()
	said := ""
	for n := uint32(0); ; n++ {
		a := h.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		h.record(a, time.Now())
		if word := h.standing.word(); word != said {
			select {
			case out <- h.standing.snapshot():
				said = word
			case <-ctx.Done():
				return nil
			}
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

// recall takes the cached set for the good one until a better comes.
func (h *Source) recall() {
	k, err := h.cache.read()
	if err == nil && k == nil {
		return
	}
	if err == nil {
		h.standing.record(answer{status: http.StatusOK, body: k.Body, marks: k.marks}, k.Read)
		err = h.standing.err
	}
	h.standing.err, h.standing.bad, h.standing.answered = nil, "", false
	if err != nil {
		h.log.Warn("cached manifests cannot be used", "url", h.Name(), "why", brief(err))
		return
	}
	h.standing.good.cached, h.standing.good.body = true, nil
}

// ask gets an answer. One that may have been cut off without a trace must come twice.
func (h *Source) ask(ctx context.Context) answer {
	a := h.client.get(ctx, h.standing.marks())
	if !a.unframed || a.refusal() != nil || a.body == nil || h.standing.isCurrent(a.body) {
		return a
	}
	again := h.client.get(ctx, marks{})
	if again.refusal() == nil && !bytes.Equal(a.body, again.body) {
		again.err = errors.New("answers without a length, and differently each time, so that it may have been cut off")
	}
	return again
}

// record takes in an answer, keeps it on disk if it is a new good one, and logs.
func (h *Source) record(a answer, now time.Time) {
	before := h.standing.good
	h.standing.record(a, now)
	if good := h.standing.good; good != before {
		h.log.Info("manifests read", "url", h.Name(), "pods", len(good.Pods))
		if err := h.cache.write(keep(good)); err != nil {
			h.log.Warn("manifests will be missing if the server is, after a restart", "url", h.Name(), "why", err)
		}
		good.body = nil
	}
	h.report(now)
}

// report logs the first failure, those after it now and then, and the end.
func (h *Source) report(now time.Time) {
	if stale := h.client.dialer.stale; stale == nil {
		h.stale = ""
	} else if h.stale != stale.Error() && h.client.dialer.made != nil {
		h.stale = stale.Error()
		h.log.Warn("certificates cannot be read again; those from before are used", "url", h.Name(), "why", h.stale)
	}
	o := &h.outage
	if h.standing.err == nil {
		if o.polls > 0 {
			h.log.Info("manifests can be read again", "url", h.Name(), "after", now.Sub(o.since).Round(time.Second), "failures", o.polls)
		}
		*o = outage{}
		return
	}
	if o.polls == 0 {
		o.since = now
	}
	o.polls++
	why := brief(h.standing.err)
	if !o.due(now, why) {
		return
	}
	using := "nothing"
	if good := h.standing.good; good != nil {
		using = fmt.Sprintf("%d pods read at %s", len(good.Pods), good.read.Format(time.RFC3339))
	}
	h.log.Warn("manifests cannot be read", "url", h.Name(), "why", why, "failures", o.polls, "since", o.since.Format(time.RFC3339), "using", using)
	o.logged, o.why = now, why
}

// brief is an error's first lines, for a log.
func brief(err error) string {
	const most = 3
	lines := strings.Split(err.Error(), "\n")
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	return strings.Join(lines, "; ")
}
