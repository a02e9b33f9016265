package http

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"podrun.io/podrun/internal/manifest/source"
)

const (
	// maxBackoff is the maximum wait after failures, unless the configured interval is longer.
	maxBackoff = 5 * time.Minute
	// maxRetryAfter is the maximum wait that a Retry-After header can cause, so that a mistake on
	// the server does not stop machines from polling.
	maxRetryAfter = 10 * time.Minute
)

// answer is the result of one request.
type answer struct {
	// err is set if there was no response, or no complete one.
	err    error
	status int
	text   string // the text of the status code
	// conditional is set if the request was a conditional one.
	conditional bool
	body        []byte
	validators  source.Validators
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

// standing is what the time of the next request depends on. It owns no clock and no connection.
type standing struct {
	// url is the URL as it was given, with its credentials; node is the node name.
	url, node string
	// answered is set once the server has answered.
	answered bool
	// failures counts the consecutive requests whose response did not say which pods are to run.
	failures int
}

// record applies a response.
func (s *standing) record(a answer) {
	s.answered = s.answered || a.status != 0
	if a.refusal() != nil {
		s.failures++
	} else {
		s.failures = 0
	}
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
