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

// mostText is how much of a server's error is kept, in bytes: it is anybody's text.
const mostText = 1 << 10

// callError is the error of a call, in plain words: gRPC's own text is for programmers.
type callError struct{ is *status.Status }

// GRPCStatus makes status.Code and status.FromError know the error.
func (e callError) GRPCStatus() *status.Status { return e.is }

func (e callError) Error() string {
	text := e.is.Message()
	const failed, dialing = `connection error: desc = `, "transport: Error while dialing: "
	if quoted, is := strings.CutPrefix(text, failed); is && e.is.Code() == codes.Unavailable {
		if why, err := strconv.Unquote(quoted); err == nil {
			return "it cannot be reached: " + strings.TrimPrefix(why, dialing)
		}
	}
	if text == "" {
		return e.is.Code().String()
	}
	return e.is.Code().String() + ": " + text
}

// brief returns an interceptor that makes errors readable, and cuts their texts.
func brief() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, in, out any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
		o ...grpc.CallOption,
	) error {
		err := call(ctx, method, in, out, conn, o...)
		said, is := status.FromError(err)
		if err == nil || !is {
			return err
		}
		return callError{status.New(said.Code(), excerpt.Of(said.Message(), mostText))}
	}
}
