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
	// maxBackoff bounds the wait after failures, unless the user's own frequency is longer.
	maxBackoff = 5 * time.Minute
	// maxRetryAfter bounds what a server may ask for, so that a slip there does not make machines deaf.
	maxRetryAfter = 10 * time.Minute
	// repeatNews and repeatSame are how soon a lasting failure is logged again, with another reason and
	// with the same.
	repeatNews, repeatSame = time.Minute, 10 * time.Minute
)

// marks are how a server tells whether its answer has changed.
type marks struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// At is the digest of the URL that gave them, after redirects. They mean nothing elsewhere.
	At string `json:"at,omitempty"`
}

// answer is what came of one request.
type answer struct {
	// err: there was no answer, or not a whole one.
	err    error
	status int
	text   string // the status in words
	// conditional: the server was asked to answer only if something changed.
	conditional bool
	body        []byte
	marks       marks
	// unframed: nothing in the answer tells whether it is whole.
	unframed bool
	// retryAfter is when the server wants to be asked again; 0: it did not say.
	retryAfter time.Duration
}

// refusal says why an answer tells nothing about what should run.
func (a answer) refusal() error {
	switch {
	case a.err != nil:
		return a.err
	case a.status == 200, a.status == 304 && a.conditional:
		return nil
	case a.status == 304:
		return errors.New("answered 304 Not Modified though it was not asked for changes")
	case a.status == 401, a.status == 403:
		return fmt.Errorf("answered %d %s: check the credentials (header, user and password, client certificate)", a.status, a.text)
	default:
		return fmt.Errorf("answered %s", strings.TrimSpace(strconv.Itoa(a.status)+" "+a.text))
	}
}

// goodSet is an answer that could be used.
type goodSet struct {
	manifest.Loaded
	hash string // of the body
	body []byte
	// marks are the newest that came with this body.
	marks marks
	// read is when it was first read.
	read time.Time
	// cached: it is from the disk, and the server has not confirmed it since podrun started.
	cached bool
}

// standing is what is known of a URL. It owns no clock and no connection.
type standing struct {
	// url is as given, with its credentials; only the identity of pods is made from it. shown is for
	// all other uses.
	url, shown, node string
	noSuffix         bool
	policy           *validate.Policy
	// good is the newest set that could be used; nil if there was none.
	good *goodSet
	// err says why what is served now is not used; nil if it is.
	err error
	// bad is the digest of the body that err is about, if it is about one.
	bad string
	// answered: the server has answered at least once.
	answered bool
	// failures counts the requests without an answer that tells anything, since the last with one.
	failures int
	reader   manifest.Reader
	// done is closed when nobody waits for an answer to be read any more.
	done <-chan struct{}
}

func (s *standing) origin() manifest.Origin {
	return manifest.Origin{Source: manifest.SourceHTTP, Path: s.shown}
}

// isCurrent reports that a body is the one in use.
func (s *standing) isCurrent(body []byte) bool {
	return s.good != nil && s.good.hash == manifest.Digest(body)
}

// marks are those to ask for changes with. They are the good set's, so that a server that goes back to it
// says so in a word.
func (s *standing) marks() marks {
	if s.good == nil {
		return marks{}
	}
	return s.good.marks
}

// record takes in an answer.
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
	case hash == s.bad: // no need to read it again
	default:
		s.accept(a, hash, now)
	}
}

// accept reads a body that is new.
func (s *standing) accept(a answer, hash string, now time.Time) {
	loaded, err := s.load(a.body)
	if errors.Is(err, manifest.ErrTooSlow) {
		s.err, s.bad = err, "" // it may be there when the next answer is
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

// load reads a body's pods. Their identity is of the URL as given, all that is shown of the masked one.
func (s *standing) load(body []byte) (manifest.Loaded, error) {
	loaded, err := s.reader.Load(s.done, body, manifest.LoadOptions{
		Origin: manifest.Origin{Source: manifest.SourceHTTP, Path: s.url}, NodeName: s.node, NoSuffix: s.noSuffix, Policy: s.policy,
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

// snapshot is what the URL asks for as far as is known.
func (s *standing) snapshot() manifest.Snapshot {
	if s.good == nil {
		return manifest.Snapshot{Source: s.shown, Err: s.err}
	}
	snap := manifest.Snapshot{Source: s.shown, Pods: s.good.Pods, Objects: s.good.Objects}
	// What the cache has may be older than what runs.
	blind := s.good.cached
	switch {
	case s.err == nil:
	case s.bad != "":
		snap.Problems = manifest.Problems(s.origin(), blind, s.err)
	case s.good.cached:
		snap.Problems = []manifest.Problem{{Origin: s.origin(), Blind: blind, Err: fmt.Errorf(
			"%w; until it can be read, what it served at %s is used, from the cache", s.err, s.good.read.Format(time.RFC3339))}}
	default:
		snap.Problems = []manifest.Problem{{Origin: s.origin(), Err: s.err}}
	}
	return snap
}

// word is the same for two snapshots that say the same.
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

// spread is from 0 to 1, and differs from one machine to the next, and from one request to the next. It is the same for
// the same, so that what happens then can be repeated.
func (s *standing) spread(request uint32) float64 {
	sum := sha256.Sum256(fmt.Append(nil, s.node, " ", s.url, " ", request))
	return float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32)
}

// pace returns how long to wait before the next request. random is from 0 to 1: thousands of machines
// that were started together must not ask together for ever.
func (s *standing) pace(every, retryAfter time.Duration, random float64) time.Duration {
	wait, most := every, max(every, min(8*every, maxBackoff))
	if s.failures > 0 && !s.answered {
		// A machine's network is often a moment later than podrun. Nobody is there yet to be spared.
		wait = min(every, time.Second)
	}
	if s.failures > 0 && retryAfter > 0 {
		// Later than asked, never earlier.
		wait = max(wait, min(retryAfter, maxRetryAfter))
		return wait + time.Duration(0.1*random*float64(wait))
	}
	for i := 1; i < s.failures && wait < most; i++ {
		wait *= 2
	}
	return time.Duration((0.9 + 0.2*random) * float64(min(wait, most)))
}

// retryAfter reads the header of that name, which has seconds or a date; date is the answer's own, by
// which a clock that is wrong here does no harm.
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

// parseDate reads a date as HTTP writes it.
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

// outage is a time in which a URL cannot be used, and what was logged of it.
type outage struct {
	since, logged time.Time
	why           string
	polls         int
}

// due reports that the outage should be logged now.
func (o outage) due(now time.Time, why string) bool {
	silent := now.Sub(o.logged)
	return o.logged.IsZero() || silent >= repeatSame || why != o.why && silent >= repeatNews
}
