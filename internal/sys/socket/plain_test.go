package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestPlain: errors of calls are for people, and keep their codes.
func TestPlain(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "s")
	call := func(method string) error {
		conn, err := Client(at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return fmt.Errorf("a call: %w", conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}))
	}
	check := func(err error, code codes.Code, want string) {
		t.Helper()
		if status.Code(err) != code || !strings.HasPrefix(err.Error(), "a call: "+want) || strings.Contains(err.Error(), "rpc error") ||
			strings.Contains(err.Error(), "desc =") || len(err.Error()) > 2*mostText {
			t.Errorf("%v: %v, want %v: %s", status.Code(err), err, code, want)
		}
	}
	check(call("/s/any"), codes.Unavailable, "it does not answer at "+at+" (dial unix "+at+": connect: no such file or directory)")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	defer close(ended)
	var s *grpc.Server
	s = grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		switch method {
		case "/s/full":
			return status.Error(codes.Unavailable, "the pool is busy")
		case "/s/long":
			return status.Error(codes.Internal, strings.Repeat("x", 1<<12))
		case "/s/hangs":
			<-ended // the call's time is the stream's too, and its answer would be as early as the client's
		case "/s/dies":
			go s.Stop()
			<-stream.Context().Done()
		}
		return status.Error(codes.NotFound, "")
	}))
	go func() { _ = s.Serve(l) }()
	check(call("/s/full"), codes.Unavailable, "Unavailable: the pool is busy")
	check(call("/s/long"), codes.Internal, "Internal: xxx")
	check(call("/s/none"), codes.NotFound, "NotFound")
	check(call("/s/hangs"), codes.DeadlineExceeded, "it has not answered at "+at+" in time")
	conn, err := Client(at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/s/full")
	if err == nil {
		err = errors.Join(list.SendMsg(&emptypb.Empty{}), list.CloseSend(), list.RecvMsg(&emptypb.Empty{}))
	}
	check(fmt.Errorf("a call: %w", err), codes.Unavailable, "Unavailable: the pool is busy")
	check(call("/s/dies"), codes.Unavailable, "it does not answer at "+at+" (")
}
