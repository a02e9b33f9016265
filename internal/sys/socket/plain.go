package socket

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podrun.io/podrun/internal/sys/excerpt"
)

// callError is the error of a call in words for people. The codes of package status are those of the error in it.
type callError struct {
	text string
	err  error
}

func (e *callError) Error() string { return e.text }
func (e *callError) Unwrap() error { return e.err }

// mostText is how much of a server's error is kept, in bytes: it is anybody's text.
const mostText = 1 << 10

// plain returns the error of a call to the server at path: whether it answers, or the server's own text after the name
// of its code.
func plain(ctx context.Context, path string, err error) error {
	s, is := status.FromError(err)
	if err == nil || !is {
		return err
	}
	text := excerpt.Of(s.Message(), mostText)
	switch cause := lostBy(s); {
	case cause != "":
		text = "it does not answer at " + path + " (" + excerpt.Of(cause, mostText) + ")"
	case s.Code() == codes.DeadlineExceeded && (ctx.Err() != nil || strings.HasPrefix(text, "stream terminated")):
		// The caller's patience has ended, which the server may have noticed first.
		text = "it has not answered at " + path + " in time"
	case text == "":
		text = s.Code().String()
	default:
		text = s.Code().String() + ": " + text
	}
	return &callError{text, status.Error(s.Code(), text)}
}

// lostBy returns why there is no connection; "" if there is one. Package grpc has no other sign of it than its texts.
func lostBy(s *status.Status) string {
	text := s.Message()
	if s.Code() != codes.Unavailable {
		return ""
	}
	if cause, is := strings.CutPrefix(text, "connection error: desc = "); is {
		if whole, err := strconv.Unquote(cause); err == nil {
			cause = whole
		}
		cause = strings.TrimPrefix(cause, "transport: ")
		return strings.TrimPrefix(cause, "Error while dialing: ")
	}
	for _, prefix := range []string{"error reading from server", "transport is closing", "closing transport due to"} {
		if strings.HasPrefix(text, prefix) {
			return text
		}
	}
	return ""
}
