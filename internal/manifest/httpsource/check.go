package httpsource

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/validate"
)

const (
	// maxBackoff is the maximum wait after failures, unless the configured interval is longer.
	maxBackoff = 5 * time.Minute
	// maxRetryAfter is the maximum wait that a Retry-After header can cause, so that a mistake on
	// the server does not stop machines from polling.
	maxRetryAfter = 10 * time.Minute
	// repeatNews and repeatSame are the minimum intervals between two log messages of one outage:
	// if the reason changed, and if it is the same.
	repeatNews, repeatSame = time.Minute, 10 * time.Minute
)

// marks are the validators of a response, by which a server tells whether it has changed since.
type marks struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// At is the digest of the URL that sent them, after redirects. They are not valid for other
	// URLs.
	At string `json:"at,omitempty"`
}

// answer is the result of one request.
type answer struct {
	// err is set if there was no response, or no complete one.
	err    error
	status int
	text   string // the text of the status code
	// conditional is set if the request was a conditional one.
	conditional bool
	body        []byte
	marks       marks
	// unframed is set if the response has no length or encoding that shows whether it is complete.
	unframed bool
	// retryAfter is the wait that the server requests; 0: none.
	retryAfter time.Duration
}

// refusal returns the reason why the response does not say which pods are to run; nil if it does.
func (a answer) refusal() error {
	switch {
	case a.err != nil:
		return a.err
	case a.status == 200, a.status == 304 && a.conditional:
		return nil
	case a.status == 304:
		return errors.New("answered 304 Not Modified though it was not asked for changes")
	case a.status == 401, a.status == 403:
		return fmt.Errorf("answered %d %s: check the credentials (header, user and password, client certificate)",
			a.status, a.text)
	default:
		return fmt.Errorf("answered %s", strings.TrimSpace(strconv.Itoa(a.status)+" "+a.text))
	}
}

// goodSet is a response that could be used.
type goodSet struct {
	manifest.Loaded
	hash string // of the body
	body []byte
	// marks are the newest validators that came with this body.
	marks marks
	// read is the time at which this body was first read.
	read time.Time
	// cached is set if it was read from the cache and the server has not confirmed it since podrun
	// started.
	cached bool
}

// standing is the state of a URL: the good set in use and the last failure. It takes the time as an
// argument and does no input or output.
type standing struct {
	// url is the URL as configured, with its credentials. It is used only for the identity of pods
	// and to vary the interval between requests; shown, without secrets, is for all other uses.
	url, shown, node string
	noSuffix         bool
	policy           *validate.Policy
	// good is the newest set that could be used; nil if there was none.
	good *goodSet
	// err is the reason why the last response is not used; nil if it is.
	err error
	// bad is the digest of the body that err is about; "" if err is not about a body.
	bad string
	// answered is set once the server has sent a response of any status.
	answered bool
	// failures counts the consecutive requests without a response that can be used (see
	// answer.refusal). A response with an invalid body does not count.
	failures int
	reader   manifest.Reader
	// done is closed when the source stops, so that loading a manifest is given up.
	done <-chan struct{}
}

func (s *standing) origin() manifest.Origin {
	return manifest.Origin{Source: manifest.SourceHTTP, Path: s.shown}
}

// isCurrent reports whether a body is the one in use.
func (s *standing) isCurrent(body []byte) bool {
	return s.good != nil && s.good.hash == manifest.Digest(body)
}

// marks returns the validators for the next request. They are those of the good set, so that a
// server that serves that set again answers 304.
func (s *standing) marks() marks {
	if s.good == nil {
		return marks{}
	}
	return s.good.marks
}

// record applies a response.
func (s *standing) record(a answer, now time.Time) {
	s.answered = s.answered || a.status != 0
	if err := a.refusal(); err != nil {
		s.failures++
		s.err, s.bad = fmt.Errorf("%s: %w", s.shown, err), ""
		return
	}
	s.failures = 0
	if a.status == 304 {
		s.good.cached = false
		s.err, s.bad = nil, ""
		return
	}
	hash := manifest.Digest(a.body)
	switch {
	case s.isCurrent(a.body):
		s.good.marks, s.good.cached = a.marks, false
		s.err, s.bad = nil, ""
	case hash == s.bad: // the same invalid body as before; err remains
	default:
		s.accept(a, hash, now)
	}
}

// accept loads a new body.
func (s *standing) accept(a answer, hash string, now time.Time) {
	loaded, err := s.load(a.body)
	if errors.Is(err, manifest.ErrTooSlow) {
		s.err, s.bad = err, "" // the load that was given up may have finished at the next response
		return
	}
	if err != nil {
		s.err, s.bad = err, hash
		return
	}
	var before []*v1.Pod
	if s.good != nil {
		before = s.good.Pods
	}
	manifest.MarkSeen(loaded.Pods, before, now)
	s.good = &goodSet{Loaded: loaded, hash: hash, body: a.body, marks: a.marks, read: now}
	s.err, s.bad = nil, ""
}

// load loads the pods of a body. Their identity is derived from the URL as configured; annotations
// and errors have the masked URL.
func (s *standing) load(body []byte) (manifest.Loaded, error) {
	loaded, err := s.reader.Load(s.done, body, manifest.LoadOptions{
		Origin:   manifest.Origin{Source: manifest.SourceHTTP, Path: s.url},
		NodeName: s.node,
		NoSuffix: s.noSuffix,
		Policy:   s.policy,
	})
	if errors.Is(err, manifest.ErrTooSlow) {
		return loaded, fmt.Errorf("%s: %w: more than %v", s.shown, manifest.ErrTooSlow, manifest.LoadTime)
	}
	if err == nil {
		for _, p := range loaded.Pods {
			p.Annotations[manifest.AnnotationManifest] = s.shown
		}
		for i := range loaded.Objects {
			loaded.Objects[i].Origin.Path = s.shown
		}
		return loaded, nil
	}
	if docs, errs := decode.Parse(body); len(docs) == 0 && len(errs) == 0 {
		return manifest.Loaded{}, &manifest.InvalidError{Errors: []manifest.FieldError{{File: s.shown,
			Message: "the answer is empty; to stop all pods, serve a List without items"}}}
	}
	var invalid *manifest.InvalidError
	if !errors.As(err, &invalid) {
		return manifest.Loaded{}, fmt.Errorf("%s: %w", s.shown, err)
	}
	for i := range invalid.Errors {
		invalid.Errors[i].File = s.shown
	}
	return manifest.Loaded{}, invalid
}

// snapshot returns the good set with the problem of the last response, if it has one; the error
// alone if there is no good set.
func (s *standing) snapshot() manifest.Snapshot {
	if s.good == nil {
		return manifest.Snapshot{Source: s.shown, Err: s.err}
	}
	snap := manifest.Snapshot{Source: s.shown, Pods: s.good.Pods, Objects: s.good.Objects}
	// The cached set may be older than the pods that run, so pods that are not in it may be wanted.
	blind := s.good.cached
	switch {
	case s.err == nil:
	case s.bad != "":
		snap.Problems = manifest.Problems(s.origin(), blind, s.err)
	case s.good.cached:
		snap.Problems = []manifest.Problem{{Origin: s.origin(), Blind: blind, Err: fmt.Errorf(
			"%w; until it can be read, what it served at %s is used, from the cache",
			s.err, s.good.read.Format(time.RFC3339))}}
	default:
		snap.Problems = []manifest.Problem{{Origin: s.origin(), Err: s.err}}
	}
	return snap
}

// word returns a fingerprint of the snapshot: it is equal for snapshots with the same content.
func (s *standing) word() string {
	var b strings.Builder
	if s.good != nil {
		b.WriteString(s.good.hash)
	}
	if s.err != nil {
		fmt.Fprintf(&b, " %s %v", s.bad, s.err)
	}
	return b.String()
}

// spread returns a number from 0 to 1 that differs between nodes and between requests. It is
// derived from node, URL and request number, so that a run can be reproduced.
func (s *standing) spread(request uint32) float64 {
	sum := sha256.Sum256(fmt.Append(nil, s.node, " ", s.url, " ", request))
	return float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32)
}

// pace returns the wait before the next request. random, from 0 to 1, varies it, because thousands
// of machines that were started together must not send their requests together for ever. Without
// Retry-After, the wait doubles with each failure up to 8 times the interval every, and at most
// maxBackoff.
func (s *standing) pace(every, retryAfter time.Duration, random float64) time.Duration {
	wait, most := every, max(every, min(8*every, maxBackoff))
	if s.failures > 0 && !s.answered {
		// At boot, the network is often up only shortly after podrun starts, so the first retries
		// come soon. No server has answered yet that this could overload.
		wait = min(every, time.Second)
	}
	if s.failures > 0 && retryAfter > 0 {
		// The wait may be longer than requested, never shorter.
		wait = max(wait, min(retryAfter, maxRetryAfter))
		return wait + time.Duration(0.1*random*float64(wait))
	}
	for i := 1; i < s.failures && wait < most; i++ {
		wait *= 2
	}
	return time.Duration((0.9 + 0.2*random) * float64(min(wait, most)))
}

// retryAfter parses the Retry-After header, which has seconds or a date, and returns a wait of at
// most maxRetryAfter; 0 if it is missing or invalid. date is the Date header of the response: if it
// is valid it replaces now, so that a wrong local clock does not matter.
func retryAfter(value, date string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
		return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := parseDate(value)
	if err != nil {
		return 0
	}
	if there, err := parseDate(date); err == nil {
		now = there
	}
	return max(0, min(at.Sub(now), maxRetryAfter))
}

// parseDate parses a date in one of the formats of HTTP.
func parseDate(s string) (time.Time, error) {
	var err error
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		var t time.Time
		if t, err = time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("reading date: %w", err)
}

// outage is a period in which a URL cannot be used, with what was logged last about it.
type outage struct {
	since, logged time.Time
	why           string
	polls         int
}

// due reports whether the outage should be logged now.
func (o outage) due(now time.Time, why string) bool {
	silent := now.Sub(o.logged)
	return o.logged.IsZero() || silent >= repeatSame || why != o.why && silent >= repeatNews
}
