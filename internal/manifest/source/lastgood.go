// Package source has what is common to sources that serve their manifests as one text: a URL, a
// command. LastGood retains the last text that could be used, over a reboot too. The package does
// not fetch anything: that is for the packages below it, one for each kind of source.
//
// Begin reading at LastGood.
package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/reader"
	"podrun.io/podrun/internal/manifest/support"
)

// Options describe a source of one text.
type Options struct {
	Kind manifest.SourceKind
	// Identity is part of the UIDs of the pods, and names the cache file. It may contain secrets:
	// it is never shown.
	Identity string
	// Name is what the source is called wherever it is shown.
	Name string
	// NodeName, NoSuffix, Policy and Rules are those of manifest.LoadOptions.
	NodeName string
	NoSuffix bool
	Policy   *podsecurity.Policy
	Rules    support.Rules
	// CacheDir keeps the last good text over a reboot; empty: it is not kept.
	CacheDir string
	// CacheReadOnly reads what is cached and writes nothing.
	CacheReadOnly bool
	// Empty is the error for a text without any document: it must say how to stop all pods.
	Empty string
	// LogKey is the key of the source's name in log messages, such as "url".
	LogKey string
	Log    *slog.Logger
}

// Validators are those of HTTP (RFC 9110, section 8.8), by which a server tells whether its text
// has changed. A source that has none leaves them empty.
type Validators struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// At is the digest of the URL that sent them, after redirects. They are not valid elsewhere.
	At string `json:"at,omitempty"`
}

// LastGood is what a source of one text has served: the last text that could be used, and why what
// it serves now cannot be. Whatever goes wrong, the last good text stays. It is for one goroutine.
type LastGood struct {
	o     Options
	cache cache
	// good is nil as long as no text could be used.
	good *good
	// err says why what is served now is not used; nil if it is.
	err error
	// bad is the digest of the text that err is about; empty if there was no text.
	bad    string
	reader reader.Reader
	outage outage
	done   <-chan struct{}
	// sent is the summary of the Snapshot that was sent last.
	sent string
}

// good is a text that could be used.
type good struct {
	manifest.Loaded
	hash string
	// text is nil once it has been cached.
	text []byte
	// validators are the newest that came with this text.
	validators Validators
	// read is when the text was first read.
	read time.Time
	// cached says that the text is from the disk, and that the source has not confirmed it since
	// podrun started.
	cached bool
}

// NewLastGood returns a LastGood without a text.
func NewLastGood(o Options) *LastGood {
	l := &LastGood{
		o:     o,
		cache: cache{dir: o.CacheDir, readOnly: o.CacheReadOnly, key: manifest.Digest([]byte(o.Identity))},
	}
	if o.CacheDir == "" || o.CacheReadOnly { // who keeps nothing reads once, as podrun once
		l.reader.Limit = reader.LoadTimeAlone
	}
	return l
}

// Recall takes the cached text for the good one until a better one comes. A text that is being read
// is given up when ctx ends.
func (l *LastGood) Recall(ctx context.Context) {
	l.done = ctx.Done()
	e, err := l.cache.read()
	if err == nil && e == nil {
		return
	}
	if err == nil {
		l.accept(e.Body, e.Validators, e.Read)
		err = l.err
	}
	l.err, l.bad = nil, ""
	if err != nil {
		l.o.Log.Warn("cached manifests cannot be used", l.o.LogKey, l.o.Name, "err", Brief(err))
		return
	}
	l.good.cached, l.good.text = true, nil
}

// Fail records that the source could not be read.
func (l *LastGood) Fail(err error, now time.Time) {
	l.err, l.bad = fmt.Errorf("%s: %w", l.o.Name, err), ""
	l.report(now)
}

// Confirm records that the source still serves the last good text.
func (l *LastGood) Confirm(now time.Time) {
	l.good.cached = false
	l.err, l.bad = nil, ""
	l.report(now)
}

// Accept records a text that the source serves. A text that cannot be used changes nothing but the
// error that Snapshot returns. A new good one is cached.
func (l *LastGood) Accept(text []byte, v Validators, now time.Time) {
	before := l.good
	hash := manifest.Digest(text)
	switch {
	case l.IsCurrent(text):
		l.good.validators, l.good.cached = v, false
		l.err, l.bad = nil, ""
	case hash == l.bad: // it was read already
	default:
		l.accept(text, v, now)
	}
	if l.good != before {
		l.o.Log.Info("manifests read", l.o.LogKey, l.o.Name, "pods", len(l.good.Pods))
		if err := l.cache.write(entryOf(l.good)); err != nil {
			l.o.Log.Warn("manifests cannot be cached; after a restart they are missing until the source answers",
				l.o.LogKey, l.o.Name, "err", err)
		}
		l.good.text = nil
	}
	l.report(now)
}

// IsCurrent reports whether a text is the last good one.
func (l *LastGood) IsCurrent(text []byte) bool {
	return l.good != nil && l.good.hash == manifest.Digest(text)
}

// Validators returns those of the last good text. With them a server can answer 304 Not Modified
// instead of sending that text again.
func (l *LastGood) Validators() Validators {
	if l.good == nil {
		return Validators{}
	}
	return l.good.validators
}

// accept reads a new text.
func (l *LastGood) accept(text []byte, v Validators, now time.Time) {
	loaded, err := l.load(text)
	if errors.Is(err, reader.ErrTooSlow) {
		l.err, l.bad = err, "" // it goes on; the next time its result may be there
		return
	}
	if err != nil {
		l.err, l.bad = err, manifest.Digest(text)
		return
	}
	var before manifest.Loaded
	if l.good != nil {
		before = l.good.Loaded
	}
	loaded.MarkSeen(before, now)
	l.good = &good{Loaded: loaded, hash: manifest.Digest(text), text: text, validators: v, read: now}
	l.err, l.bad = nil, ""
}

// load reads a text's pods. Their identity follows from Identity; all that is shown of them has Name.
func (l *LastGood) load(text []byte) (manifest.Loaded, error) {
	name := l.o.Name
	loaded, err := l.reader.Load(l.done, text, manifest.LoadOptions{
		Origin:   manifest.Origin{Source: l.o.Kind.Name, Path: l.o.Identity},
		Kind:     l.o.Kind,
		NodeName: l.o.NodeName,
		NoSuffix: l.o.NoSuffix,
		Policy:   l.o.Policy,
		Rules:    l.o.Rules,
	})
	if errors.Is(err, reader.ErrTooSlow) {
		return loaded, l.reader.TooSlow(name)
	}
	if err == nil {
		for _, p := range loaded.Pods {
			p.Annotations[manifest.AnnotationManifest] = name
		}
		for _, w := range loaded.Workloads {
			w.Template.Annotations[manifest.AnnotationManifest] = name
		}
		for i := range loaded.Objects {
			loaded.Objects[i].Origin.Path = name
		}
		for i := range loaded.Warnings {
			loaded.Warnings[i].File = name
		}
		return loaded, nil
	}
	if docs, errs := decode.Parse(text); len(docs) == 0 && len(errs) == 0 {
		return manifest.Loaded{}, &manifest.InvalidError{
			Errors: []manifest.FieldError{{File: name, Message: l.o.Empty}},
		}
	}
	var invalid *manifest.InvalidError
	if !errors.As(err, &invalid) {
		return manifest.Loaded{}, fmt.Errorf("%s: %w", name, err)
	}
	for i := range invalid.Errors {
		invalid.Errors[i].File = name
	}
	return manifest.Loaded{}, invalid
}

// Snapshot returns what the source asks for, as far as is known.
func (l *LastGood) Snapshot() manifest.Snapshot {
	snap := manifest.Snapshot{Source: l.o.Name, Kind: l.o.Kind}
	if l.good == nil {
		snap.Err = l.err
		return snap
	}
	snap.Pods, snap.GivenUIDs, snap.Objects = l.good.Pods, l.good.GivenUIDs, l.good.Objects
	snap.Workloads = l.good.Workloads
	origin := manifest.Origin{Source: l.o.Kind.Name, Path: l.o.Name}
	snap.Warnings = l.good.FieldWarnings(origin)
	// A cached text may be older than what runs.
	blind := l.good.cached
	switch {
	case l.err == nil:
	case l.bad != "":
		snap.Problems = manifest.Problems(origin, blind, l.err)
	case l.good.cached:
		snap.Problems = []manifest.Problem{{Origin: origin, Blind: blind, Err: fmt.Errorf(
			"%w; until it can be read, what it served at %s is used, from the cache",
			l.err, l.good.read.Format(time.RFC3339))}}
	default:
		snap.Problems = []manifest.Problem{{Origin: origin, Err: l.err}}
	}
	return snap
}

// Send sends a Snapshot unless the last one that it sent said the same. It returns false when ctx ends
// first.
func (l *LastGood) Send(ctx context.Context, out chan<- manifest.Snapshot) bool {
	summary := l.summary()
	if summary == l.sent {
		return true
	}
	select {
	case out <- l.Snapshot():
		l.sent = summary
		return true
	case <-ctx.Done():
		return false
	}
}

// summary is the same for two snapshots that say the same.
func (l *LastGood) summary() string {
	var b strings.Builder
	if l.good != nil {
		b.WriteString(l.good.hash)
	}
	if l.err != nil {
		fmt.Fprintf(&b, " %s %v", l.bad, l.err)
	}
	return b.String()
}
