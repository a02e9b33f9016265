package socket

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc"
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

// plainly returns an interceptor that makes the errors of calls those of plain.
func plainly(path string) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, in, out any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
		o ...grpc.CallOption,
	) error {
		return plain(ctx, path, call(ctx, method, in, out, conn, o...))
	}
}

// plainStream does so for streams.
func plainStream(path string) grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, of *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		o ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := open(ctx, of, conn, method, o...)
		if err != nil {
			return nil, plain(ctx, path, err)
		}
		return stream{s, path}, nil
	}
}

// stream is one whose errors are those of plain.
type stream struct {
	grpc.ClientStream
	path string
}

// RecvMsg implements grpc.ClientStream.
func (s stream) RecvMsg(m any) error { return plain(s.Context(), s.path, s.ClientStream.RecvMsg(m)) }
